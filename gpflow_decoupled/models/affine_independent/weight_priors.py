"""Non-Gaussian priors of weights."""

from __future__ import annotations

__all__ = ["WeightPriors", "split_prior"]


import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.kernels import Kernel, Linear

from ...expectations.site_integrals import SiteGroup
from ...likelihoods import prior_site
from ...probability import tfp
from ..linear_parts import linear_prior, location_and_scale, normal_prior, scalar_prior

tfd = tfp.distributions


class WeightPriors:
    """Priors of the first p weights w_j = centre_j + scale_j w~_j; the model works with w~.

    The TFP distribution has batch shape [] or [p]; centre and scale are [p].
    """

    def __init__(
        self,
        prior: tfp.distributions.Distribution,
        centre: np.ndarray,
        scale: np.ndarray,
        intercept: bool,
    ) -> None:
        self.prior, self.centre, self.scale = prior, centre, scale
        self.gaussian = np.concatenate([np.zeros(len(centre)), np.ones(int(intercept))])
        """1 for each weight with a Gaussian prior, else 0, [p] or [p + 1]."""
        self.log_volume = float(np.sum(np.log(scale)))
        """log|dw / dw~|, the entropy of w minus the entropy of w~, in nats."""

    def groups(self, size: int) -> list[SiteGroup]:
        """One site per weight with such a prior; `size` counts all weights."""
        features = np.eye(len(self.centre), size) * self.scale[:, None]
        return [
            SiteGroup(
                prior_site(self.prior, len(self.centre)),
                tf.constant(features, default_float()),
                tf.constant(self.centre, default_float()),
            )
        ]


def split_prior(
    prior: tfp.distributions.Distribution | None, columns: int, intercept: bool
) -> tuple[np.ndarray, Kernel, WeightPriors | None]:
    """Split a prior over p weights into a prior mean [p], a kernel, and sites.

    A Gaussian prior (None is N(0, I)) becomes the kernel. Another scalar distribution, or
    `tfd.Independent` of one, of batch shape [] or [p], becomes a site per weight.
    """
    inner = scalar_prior(prior, columns)
    if inner is None or isinstance(inner, tfd.Normal):
        mean, kernel = linear_prior(
            prior if inner is None else normal_prior(inner, columns), columns
        )
        return mean, kernel, None
    centre, scale = (
        np.broadcast_to(part, [columns]).astype(default_float())
        for part in location_and_scale(inner)
    )
    return centre, Linear(variance=scale**2), WeightPriors(inner, centre, scale, intercept)
