"""Sites of Laplace noise, Laplace priors, hinge loss."""

from __future__ import annotations

__all__ = ["HINGE", "LAPLACE", "HingeLoss", "LaplaceLoss", "laplace_site"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...expectations.projections import Site
from ..hinge import Hinge, expected_hinge_loss
from ..laplace import LEAST_DEVIATION, Laplace, expected_laplace_loss
from ..parameters import constant_parameter, parameter_per_site
from ..support import BINARY
from .description import SiteDescription
from .site_loss import Expansion, Maximiser, SiteLoss, site_labels

_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


class LaplaceLoss(SiteLoss):
    """The site loss of Laplace noise, f = log 2 b + (2 sigma phi(t) + (h - y) (2 Phi(t) - 1)) / b.

    t = (h - y) / sigma. f is linear along rays from (h, sigma) = (y, 0), so the dual objective has
    a maximum for rho > 0 only.

    :param likelihood: with the scale b of the noise.
    :param Y: labels y [N, L].

    Example::

        loss = LaplaceLoss(Laplace(0.5), Y)
        loss.value(h, sigma)  # [N, L], nats
    """

    needs_penalty = True

    def __init__(self, likelihood: Laplace, Y: TensorType) -> None:
        super().__init__(Y)
        self._likelihood = likelihood
        constant_parameter(likelihood.scale, "The noise scale", positive=True)

    @property
    def _scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._likelihood.scale)

    @property
    def lower(self) -> tf.Tensor:
        return -tf.ones_like(self.Y) / self._scale

    @property
    def upper(self) -> tf.Tensor:
        return tf.ones_like(self.Y) / self._scale

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return expected_laplace_loss(
            h - self.Y, tf.maximum(tf.abs(sigma), LEAST_DEVIATION), self._scale
        )

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        size, sign, scale = tf.maximum(tf.abs(sigma), LEAST_DEVIATION), tf.sign(sigma), self._scale
        t = tf.clip_by_value((h - self.Y) / size, -40.0, 40.0)
        slope = 2.0 * tf.exp(-0.5 * tf.square(t)) / (_SQRT_2_PI * scale)  # f_sigma
        bend = slope / size
        d_h = tf.math.erf(t / _SQRT_2) / scale
        return Expansion(
            self.value(h, sigma), d_h, sign * slope, bend, -sign * t * bend, tf.square(t) * bend
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self.Y + tf.zeros_like(alpha)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        """The maximum of `dual_objective` over sigma >= sigma_k / 2, [N, L] each; rho > 0."""
        scale = self._scale
        # 1) f_h = alpha is an equation for t = (h - y) / sigma alone
        edge = 1.0 - (1e-15 if alpha.dtype == tf.float64 else 1e-6)
        t = _SQRT_2 * tf.math.erfinv(tf.clip_by_value(scale * alpha, -edge, edge))
        # 2) on that ray f_sigma is constant, and (V15) a parabola in sigma
        slope = 2.0 * tf.exp(-0.5 * tf.square(t)) / (_SQRT_2_PI * scale)
        free = sigma_k + (lam * sigma_k - slope) / rho
        moves = tf.cast(free > 0.5 * sigma_k, free.dtype)
        sigma = tf.maximum(free, 0.5 * sigma_k)
        # 3) its maximum, with f inserted by hand: alpha h - f cancels all terms in h - y but alpha
        # y
        pull = lam * sigma_k * (sigma - 0.5 * sigma_k) - 0.5 * rho * tf.square(sigma - sigma_k)
        value = alpha * self.Y - tf.math.log(2.0 * scale) - slope * sigma + pull  # (V15)
        d_h_d_alpha = sigma / slope + moves * tf.square(t) / rho  # (V17)
        return Maximiser(
            self.Y + sigma * t,
            sigma,
            value,
            d_h_d_alpha,
            moves * t * sigma_k / rho,
            moves * sigma_k / rho,
        )


class HingeLoss(LaplaceLoss):
    """The site loss of the hinge loss, f = (1 - s h) Phi(t) + sigma phi(t), s = 2 y - 1.

    t = (1 - s h) / sigma: a Laplace loss about s of scale 2, up to log 4 and a linear function. f_h
    lies in (-1, 0) for y = 1, in (0, 1) for y = 0.

    :param likelihood: without Parameters.
    :param Y: labels y of 0 or 1 [N, L]; the attribute `Y` has s.

    Example::

        loss = HingeLoss(Hinge(), Y)
        loss.value(h, sigma)  # [N, L]
    """

    def __init__(self, likelihood: Hinge, Y: TensorType) -> None:
        SiteLoss.__init__(self, 2.0 * site_labels(Y) - 1.0)

    @property
    def _scale(self) -> tf.Tensor:
        return tf.constant(2.0, self.Y.dtype)

    @property
    def lower(self) -> tf.Tensor:
        return super().lower - 0.5 * self.Y

    @property
    def upper(self) -> tf.Tensor:
        return super().upper - 0.5 * self.Y

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return expected_hinge_loss(h, tf.maximum(tf.abs(sigma), LEAST_DEVIATION), self.Y)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        half = super().expand(h, sigma)  # with the value of this class
        return half._replace(d_h=half.d_h - 0.5 * self.Y)  # (V32)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        best = super().maximiser(alpha + 0.5 * self.Y, lam, sigma_k, rho)
        return best._replace(value=best.value + np.log(4.0) - 0.5)  # (V32)


def laplace_site(y_0: tf.Tensor, tau: tf.Tensor) -> Site:
    """Laplace log density of y about y_0 [N] with scale tau [N], of a likelihood or a prior."""

    def gauss(m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, tau: tf.Tensor) -> tf.Tensor:
        return -expected_laplace_loss(
            m - y_0, tf.sqrt(tf.maximum(variance, LEAST_DEVIATION**2)), tau
        )

    return Site(
        smooth=lambda y, y_0, tau: tf.zeros_like(y) - tf.math.log(2.0 * tau),
        parameters=(y_0, tau),
        kink=lambda y_0, tau: (y_0, -1.0 / tau),
        kernel=lambda omega, y_0, tau: tf.zeros_like(omega) - 2.0 / tau,
        gauss=gauss,
        centre=lambda y_0, tau: y_0,
    )


def _density(likelihood: Laplace, Y: tf.Tensor) -> Site:
    return laplace_site(Y, parameter_per_site(likelihood.scale, "The noise scale", Y))


LAPLACE = SiteDescription(LaplaceLoss, _density)
HINGE = SiteDescription(HingeLoss, support=BINARY)
