"""The prior of a linear model, and checks."""

from __future__ import annotations

__all__ = [
    "WeightPriors", "linear_mean", "linear_prior", "location_and_scale", "scalar_prior",
    "split_prior", "with_intercept",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.functions import Linear as LinearFunction
from gpflow.functions import MeanFunction
from gpflow.kernels import Constant, Kernel, Linear
from gpflow.utilities import set_trainable

from ..errors import DataError
from ..expectations.fourier import SiteGroup
from ..inducing import LinearWeights
from ..inputs import is_number
from ..likelihoods import prior_site
from ..probability import tfp
from ..summaries import short_repr

tfd = tfp.distributions


def with_intercept(kernel: Kernel, variance: float | None) -> Kernel:
    """The kernel of the weights, and of an intercept with this prior variance, not trainable."""
    if variance is not None:
        if not is_number(variance) or variance <= 0.0:
            raise DataError(
                f"intercept_variance={short_repr(variance)} must be a number above 0, the prior"
                " variance of b."
            )
        kernel += Constant(float(variance))
    set_trainable(kernel, False)
    return kernel


def linear_mean(mean: np.ndarray, latents: int) -> MeanFunction | None:
    """The mean function x^T m_0 for the prior mean m_0 [p], or None."""
    if not np.any(mean):
        return None
    function = LinearFunction(np.tile(mean[:, None], latents), np.zeros(latents, default_float()))
    set_trainable(function, False)
    return function


def linear_prior(
    prior: tfp.distributions.Distribution | None, columns: int
) -> tuple[np.ndarray, Kernel]:
    """Return the mean [p] of a Gaussian prior N(m, S), and its kernel x^T S x'."""
    if prior is None:
        ones = np.ones(columns, default_float())
        return 0.0 * ones, Linear(variance=ones)
    inner = scalar_prior(prior, columns)
    if isinstance(inner, tfd.Normal):
        parts = (np.broadcast_to(part, [columns]) for part in (inner.loc, inner.scale))
        prior = tfd.MultivariateNormalDiag(*(part.astype(default_float()) for part in parts))
    if not isinstance(prior, tfd.MultivariateNormalLinearOperator):
        raise DataError(
            f"prior is a {type(prior).__name__}; pass a Normal, MultivariateNormalDiag,"
            " MultivariateNormalTriL or MultivariateNormalFullCovariance of"
            " tensorflow_probability.distributions."
        )
    mean = np.asarray(prior.mean(), default_float())
    if mean.shape != (columns,):
        raise DataError(
            f"prior is over an array of shape {list(mean.shape)} and X has {columns} columns: it"
            " must be over one weight per column; the intercept has a prior of its own, see"
            " intercept_variance."
        )
    if not np.all(np.isfinite(mean)):
        raise DataError("prior has a mean with entries that are not finite: repair its loc.")
    if isinstance(prior, tfd.MultivariateNormalDiag):
        return mean, Linear(variance=_variances(np.asarray(prior.variance(), default_float())))
    # the factor of one that is not positive definite is NaN
    given = prior.parameters.get("covariance_matrix")
    return mean, LinearWeights(
        np.asarray(prior.covariance() if given is None else given, default_float())
    )


def scalar_prior(
    prior: tfp.distributions.Distribution | None, columns: int
) -> tfp.distributions.Distribution | None:
    """Return the scalar distribution, of batch shape [] or [p], of independent priors, or None."""
    inner = prior.distribution if isinstance(prior, tfd.Independent) else prior
    if not isinstance(inner, tfd.Distribution) or inner.event_shape.rank != 0:
        return None
    if inner.batch_shape.rank not in (0, 1) or (
        inner.batch_shape.rank == 1 and inner.batch_shape[0] not in (1, columns)
    ):
        raise DataError(
            f"prior has batch shape {inner.batch_shape} and X has {columns} columns: it must be one"
            " distribution for all columns, or one per column; the intercept has a prior of its"
            " own, see intercept_variance."
        )
    return inner


def location_and_scale(prior: tfp.distributions.Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Location and scale [] or [p]: `loc` and `scale`, else mean and deviation, else 0 and 1."""
    if isinstance(prior, (tfd.Laplace, tfd.StudentT)):
        centre, scale = np.asarray(prior.loc), np.asarray(prior.scale)
    else:
        try:
            centre, scale = np.asarray(prior.mean()), np.asarray(prior.stddev())
        except NotImplementedError:  # these are only coordinates of a weight whose prior is a site
            return np.zeros([]), np.ones([])
    if not np.all(np.isfinite(centre)) or not np.all(np.isfinite(scale) & (scale > 0)):
        raise DataError(
            "prior has a location that is not finite, or a scale that is not finite and positive:"
            " repair it."
        )
    return centre, scale


def _variances(variances: np.ndarray) -> np.ndarray:
    bad = np.flatnonzero(~((variances > 0) & np.isfinite(variances)))
    if len(bad):
        raise DataError(
            f"prior has variance {variances[bad[0]]:g} for weight {bad[0]}, and so is not positive"
            " definite: each must be above 0 and finite."
        )
    return variances


# ---
# Non-Gaussian priors of weights.


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
        return *linear_prior(prior, columns), None
    centre, scale = (
        np.broadcast_to(part, [columns]).astype(default_float())
        for part in location_and_scale(inner)
    )
    return centre, Linear(variance=scale**2), WeightPriors(inner, centre, scale, intercept)
