"""Sites of weights with non-Gaussian priors."""

from __future__ import annotations

__all__ = ["LossWithPriors", "StackedLoss", "prior_site"]

import math
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ..errors import DataError
from ..expectations.projections import Site
from ..probability import tfp
from .gpflow_sites import gaussian_site, student_t_site
from .laplace import laplace_site
from .site_loss import Expansion, Reference, SiteLoss

# A Laplace prior p(w) is the model's prior N(w; mu, tau^2) times a site p(w) / N(w; mu, tau^2),
# with the Laplace loss f_L:
#
#   f(h, sigma) = f_L(h, sigma) - 1/2 log(2 pi tau^2) - ((h - mu)^2 + sigma^2) / (2 tau^2)    (V30)
#
# The bound does not depend on tau.


tfd = tfp.distributions


def prior_site(prior: tfp.distributions.Distribution, count: int) -> Site:
    """Return the site log p(w_d) of weights with independent priors.

    :param prior: a scalar TFP distribution of batch shape [] or [p]; other than Laplace, normal and
        Student-t only []. Laplace and normal priors have a closed Fourier transform.
    :param count: p, the number of weights.

    Example::

        site = prior_site(tfp.distributions.Laplace(0.0, 0.5), count=10)
    """

    def rows(*parts: TensorType) -> tuple[tf.Tensor, ...]:
        return tuple(
            tf.cast(part, default_float()) + tf.zeros([count], default_float()) for part in parts
        )

    if isinstance(prior, tfd.Laplace):
        return laplace_site(*rows(prior.loc, prior.scale))
    if isinstance(prior, tfd.StudentT):
        return student_t_site(*rows(prior.loc, prior.scale, prior.df))
    if isinstance(prior, tfd.Normal):
        return gaussian_site(*rows(prior.loc, prior.scale))
    if prior.batch_shape.rank != 0:
        raise DataError(
            f"The prior {prior.name} has batch shape {prior.batch_shape}; pass one distribution of"
            " batch shape [] for all weights, or a Laplace, StudentT or Normal distribution."
        )
    return Site(smooth=lambda y: tf.cast(prior.log_prob(tf.cast(y, prior.dtype)), y.dtype))


class StackedLoss(SiteLoss):
    """Stack losses [N_i, L] by rows."""

    def __init__(self, *parts: SiteLoss) -> None:
        super().__init__(tf.concat([part.Y for part in parts], axis=0))
        self.parts = parts
        self.needs_penalty = any(part.needs_penalty for part in parts)

    @property
    def lower(self) -> tf.Tensor:
        return tf.concat([part.lower for part in self.parts], axis=0)

    @property
    def upper(self) -> tf.Tensor:
        return tf.concat([part.upper for part in self.parts], axis=0)

    @property
    def curvature(self) -> tf.Tensor:
        return tf.concat([part.curvature for part in self.parts], axis=0)

    @property
    def penalised(self) -> tf.Tensor:
        return tf.concat([part.penalised for part in self.parts], axis=0)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return tf.concat([part.value(*rows) for part, *rows in self._by_part(h, sigma)], axis=0)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        found = [part.expand(*rows) for part, *rows in self._by_part(h, sigma)]
        return Expansion(*(tf.concat(column, axis=0) for column in zip(*found)))

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return tf.concat([part.start(rows) for part, rows in self._by_part(alpha)], axis=0)

    def _by_part(self, *arrays: tf.Tensor) -> Iterator[tuple[Any, ...]]:
        sizes = [int(part.Y.shape[0]) for part in self.parts]
        return zip(self.parts, *(tf.split(array, sizes) for array in arrays))


class LossWithPriors(SiteLoss):
    """Losses of N observations stacked on log-prior losses of p weights minus Gaussians' (V30).

    Arrays are [N + p, L]. In the rows of weights f is convex minus a quadratic, f_hh >= -1 / tau^2.

    :param observations: their losses [N, L].
    :param priors: expected losses of the weights [p, L], whose labels are the locations mu.
    :param precision: returns 1 / tau^2 [p] of N(mu, tau^2), the model's priors.
    """

    def __init__(
        self, observations: SiteLoss, priors: SiteLoss, precision: Callable[[], tf.Tensor]
    ) -> None:
        self._sum = StackedLoss(observations, priors)
        super().__init__(self._sum.Y)
        self.needs_penalty = self._sum.needs_penalty
        self._precision = precision

    @property
    def reference(self) -> Reference:  # type: ignore[override]
        """The Gaussians, of precision zero at the observations."""
        observations, priors = self._sum.parts
        below = tf.reshape(self._precision(), [-1, 1]) * tf.ones_like(priors.Y)
        return Reference(
            self._sum, tf.concat([tf.zeros_like(observations.Y), below], axis=0), self.Y
        )

    @property
    def lower(self) -> tf.Tensor:
        return tf.where(self.reference.precision > 0.0, self._constant(-math.inf), self._sum.lower)

    @property
    def upper(self) -> tf.Tensor:
        return tf.where(self.reference.precision > 0.0, self._constant(math.inf), self._sum.upper)

    @property
    def curvature(self) -> tf.Tensor:
        return self._sum.curvature + self.reference.precision

    @property
    def penalised(self) -> tf.Tensor:
        return self._sum.penalised

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return self._sum.value(h, sigma) - self.reference.expected_loss(h, sigma)  # (V30)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        whole, gaussians = self._sum.expand(h, sigma), self.reference
        c, mu = gaussians.precision, gaussians.centre
        return Expansion(
            whole.value - gaussians.expected_loss(h, sigma),  # (V30)
            whole.d_h - c * (h - mu),
            whole.d_s - c * sigma,
            whole.d_hh - c,
            whole.d_hs,
            whole.d_ss - c,
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self._sum.start(alpha)
