"""Independent non-Gaussian priors of weights: one more site a weight."""

from __future__ import annotations

__all__ = ["WeightPriors", "split_prior"]

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float
from gpflow.kernels import Kernel, Linear

from ...errors import DataError
from ...expectations.site_integrals import SiteGroup
from ...likelihoods import prior_site
from ..linear_parts import linear_prior

tfd = tfp.distributions


class WeightPriors:
    """Priors of the first p weights w_j = centre_j + scale_j w~_j, which have no Gaussian prior.

    :param prior: a TFP distribution of batch shape [] or [p]. :param centre: [p]. :param scale: [p], above 0.
    :param intercept: whether a Gaussian weight follows.
    """

    def __init__(self, prior: Any, centre: np.ndarray, scale: np.ndarray, intercept: bool) -> None:
        self.prior, self.centre, self.scale = prior, centre, scale
        self.gaussian = np.concatenate([np.zeros(len(centre)), np.ones(int(intercept))])
        self.log_volume = float(np.sum(np.log(scale)))
        """log|dw / dw~|, which the entropy of w has beside that of w~"""

    def groups(self, size: int) -> list[SiteGroup]:
        """One site a weight; `size` counts all weights."""
        features = np.eye(len(self.centre), size) * self.scale[:, None]
        return [
            SiteGroup(
                prior_site(self.prior, len(self.centre)),
                tf.constant(features, default_float()),
                tf.constant(self.centre, default_float()),
            )
        ]


def split_prior(prior: Any | None, columns: int, intercept: bool) -> tuple[np.ndarray, Kernel, WeightPriors | None]:
    """Prior mean [p], kernel, and the sites of a prior over the weights of `columns` = p columns.

    A Gaussian of `MultivariateNormal...` is all kernel. A scalar distribution, or an `Independent` one, of batch shape []
    or [p] becomes sites, and the kernel only sets their coordinates. Raises `DataError` for anything else.
    """
    inner: Any = prior.distribution if isinstance(prior, tfd.Independent) else prior
    multivariate = not isinstance(inner, tfd.Distribution) or inner.event_shape.rank != 0
    if inner is None or multivariate:
        mean, kernel = linear_prior(prior, columns)
        return mean, kernel, None
    if inner.batch_shape.rank not in (0, 1) or (
        inner.batch_shape.rank == 1 and inner.batch_shape[0] not in (1, columns)
    ):
        raise DataError(
            f"prior has batch shape {inner.batch_shape} and X has {columns} columns: it must be one distribution, or one a "
            "column; the intercept has a prior of its own, see intercept_variance."
        )
    if isinstance(inner, tfd.Normal):
        scale = np.broadcast_to(np.asarray(inner.scale, default_float()), [columns])
        loc = np.broadcast_to(np.asarray(inner.loc, default_float()), [columns])
        mean, kernel = linear_prior(tfd.MultivariateNormalDiag(loc, scale), columns)
        return mean, kernel, None
    centre, scale = (np.broadcast_to(part, [columns]).astype(default_float()) for part in _coordinates(inner))
    return centre, Linear(variance=scale**2), WeightPriors(inner, centre, scale, intercept)


def _coordinates(prior: Any) -> tuple[np.ndarray, np.ndarray]:
    """A centre and a positive scale of a distribution, which only condition the problem."""
    if isinstance(prior, (tfd.Laplace, tfd.StudentT)):
        centre, scale = np.asarray(prior.loc), np.asarray(prior.scale)
    else:
        try:
            centre, scale = np.asarray(prior.mean()), np.asarray(prior.stddev())
        except NotImplementedError:
            return np.zeros([]), np.ones([])
    if not np.all(np.isfinite(centre)) or not np.all(np.isfinite(scale) & (scale > 0)):
        raise DataError("prior has a location or a scale that is not finite and positive: repair it.")
    return centre, scale
