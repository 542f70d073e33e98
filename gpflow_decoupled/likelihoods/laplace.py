"""Laplace noise."""

from __future__ import annotations

__all__ = [
    "AsymmetricLaplace", "HINGE", "Hinge", "HingeLoss", "LAPLACE", "LEAST_DEVIATION", "Laplace",
    "LaplaceLoss", "QUANTILE", "QuantileLoss", "expected_hinge_loss", "expected_laplace_loss",
    "laplace_site", "log_side",
]  # fmt: skip

import math

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from ..errors import DataError
from ..expectations.projections import Site
from ..inputs import is_number
from ..probability import tfp
from ..special import log_normal_cdf
from ..summaries import short_repr
from .parameters import BINARY, constant_parameter, parameter_per_site, positive_parameter
from .site_loss import Expansion, Maximiser, SiteDescription, SiteLoss, site_labels

LEAST_DEVIATION = 1e-10
"""Least deviation of f: the expected loss is |h - y| / b to all digits, derivatives finite."""
_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


class Laplace(ScalarLikelihood):
    """Laplace noise: p(y | f) = exp(-|y - f| / b) / (2 b) with the scale b.

    More robust to outliers than Gaussian noise, and log-concave. Expectations and predictions are
    closed forms.

    :param scale: b, above 0: a number, or one per observation [N, 1]; the noise variance is 2 b^2.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), Laplace(scale=0.3))
        LinearlyConstrainedLagrangian().run(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tfp.distributions.Laplace(tf.convert_to_tensor(F), self.scale).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return 2.0 * tf.square(self.scale) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + 2.0 * tf.square(self.scale)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # y is the sum of a Gaussian and a Laplace variable: one term for each side of the kink of
        # the Laplace density
        scale = tf.convert_to_tensor(self.scale)
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        t, ratio = tf.abs(Y - Fmu) / sigma, sigma / scale
        near, far = log_side(-t, ratio), log_side(t, ratio)
        density = tf.reduce_logsumexp(tf.stack([near, far]), axis=0) - tf.math.log(2.0 * scale)
        return tf.reduce_sum(density, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        return -tf.reduce_sum(
            expected_laplace_loss(Fmu - Y, sigma, tf.convert_to_tensor(self.scale)), axis=-1
        )


def log_side(t: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """log[exp(ratio^2 / 2 + t ratio) Phi(-t - ratio)] for ratio > 0, shapes [...] broadcast."""
    # Above t = -ratio: -t^2 / 2 + log[erfcx((t + ratio) / sqrt 2) / 2], without cancellation.
    x = t + ratio
    above = (
        -0.5 * tf.square(t) + tfp.math.logerfcx(tf.maximum(x, 0.0) * math.sqrt(0.5)) - math.log(2.0)
    )
    below = ratio * (0.5 * ratio + t) + log_normal_cdf(tf.maximum(-x, 0.0))
    return tf.where(x >= 0.0, above, below)


def expected_laplace_loss(residual: tf.Tensor, sigma: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """E[-log p(y | f)], f ~ N(h, sigma^2), in nats, h - y = `residual`; shapes [...] broadcast."""
    # With t = (h - y) / sigma, log 2 b + (2 sigma phi(t) + (h - y) (2 Phi(t) - 1)) / b.
    t = tf.clip_by_value(residual / sigma, -40.0, 40.0)
    kink = 2.0 * sigma * tf.exp(-0.5 * tf.square(t)) / _SQRT_2_PI
    return tf.math.log(2.0 * scale) + (kink + residual * tf.math.erf(t / _SQRT_2)) / scale


# ---
# The hinge loss of support vector machines.


_NODES = 100  # of predictions, whose integrand has kinks


class Hinge(ScalarLikelihood):
    """The hinge loss max(0, 1 - s f), s = 2 y - 1, for generalised (Gibbs) posteriors.

    exp(-loss) does not sum to 1 over labels: bounds do not compare with other likelihoods, nor
    choose the scale. Log-concave, with closed-form expected losses. Predictions normalise
    exp(-loss) over both labels (Sollich 2002).

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        # Y [N, 1] of zeros and ones
        model = LCLGP((X, Y), gpflow.kernels.Matern52(variance=100.0), Hinge())
        LinearlyConstrainedLagrangian().run(model)
        probability, _ = model.predict_y(Xnew)
    """

    def __init__(self, **kwargs: object) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(1, _NODES))
        super().__init__(**kwargs)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.nn.relu(1.0 - (2.0 * Y - 1.0) * F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(tf.nn.relu(1.0 + F) - tf.nn.relu(1.0 - F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self._conditional_mean(X, F)
        return p * (1.0 - p)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = self.quadrature(lambda f: self._conditional_mean(None, f), Fmu, Fvar)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # p(0 | f) is p(1 | -f)
        p = self.quadrature(lambda f: self._conditional_mean(None, f), (2.0 * Y - 1.0) * Fmu, Fvar)
        return tf.reduce_sum(tf.math.log(p), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        return -tf.reduce_sum(expected_hinge_loss(Fmu, sigma, 2.0 * Y - 1.0), axis=-1)


def expected_hinge_loss(h: tf.Tensor, sigma: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """E max(0, 1 - s f), f ~ N(h, sigma^2), s = `sign` of -1 or 1, sigma > 0; [...] broadcast."""
    # (1 - s h) Phi(t) + sigma phi(t), t = (1 - s h) / sigma, (V32).
    two = tf.constant(2.0, h.dtype)
    # (V32)
    return expected_laplace_loss(h - sign, sigma, two) - math.log(4.0) + 0.5 * (1.0 - sign * h)


# ---
# Noise under which f is a quantile of y.


class AsymmetricLaplace(ScalarLikelihood):
    """p(y | f) = q (1 - q) / b exp(-rho(y - f) / b), rho(u) = u (q - [u < 0]): f is the q-quantile.

    Minus log p is the loss of quantile regression (Yu & Moyeed, 2001). Log-concave; expectations
    and predictions are closed forms. `predict_f` is of the quantile; `predict_y` has this noise,
    which is right near the quantile only.

    :param quantile: q, above 0 and below 1.
    :param scale: b, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, y, AsymmetricLaplace(0.9))
        gd.fit(model)
        ninth_decile, _ = model.predict_f(Xnew)
    """

    def __init__(self, quantile: float = 0.5, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        if not is_number(quantile) or not 0.0 < quantile < 1.0:
            raise DataError(
                f"quantile={short_repr(quantile)} must be a number above 0 and below 1, for example"
                " 0.9."
            )
        self.quantile = float(quantile)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        scale, q = tf.convert_to_tensor(self.scale), self.quantile
        residual = (Y - tf.convert_to_tensor(F)) / scale
        return tf.math.log(q * (1.0 - q) / scale) - tf.maximum(q * residual, (q - 1.0) * residual)

    def _shift(self) -> float:
        return (1.0 - 2.0 * self.quantile) / (self.quantile * (1.0 - self.quantile))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F + self._shift() * self.scale

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        # the variance of a difference of exponentials of means 1 / q and 1 / (1 - q)
        squares = self.quantile**-2.0 + (1.0 - self.quantile) ** -2.0
        return squares * tf.square(self.scale) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._conditional_mean(X, Fmu), Fvar + self._conditional_variance(X, Fmu)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # one term for each side of the kink, as `Laplace`
        scale, q = tf.convert_to_tensor(self.scale), self.quantile
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        t, ratio = (Y - Fmu) / sigma, sigma / scale
        above, below = log_side(-t, q * ratio), log_side(t, (1.0 - q) * ratio)
        density = tf.reduce_logsumexp(tf.stack([above, below]), axis=0)
        return tf.reduce_sum(density + tf.math.log(q * (1.0 - q) / scale), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        scale = tf.convert_to_tensor(self.scale)
        # rho(u) / b = |u| / (2 b) + (q - 1/2) u / b
        even = expected_laplace_loss(Fmu - Y, sigma, 2.0 * scale)
        odd = (self.quantile - 0.5) * (Y - Fmu) / scale
        return tf.reduce_sum(self.log_excess() - even - odd, axis=-1)

    def log_excess(self) -> float:
        """log 4 q (1 - q), by which a Laplace density of scale 2 b is larger at the kink."""
        return float(np.log(4.0 * self.quantile * (1.0 - self.quantile)))


# ---
# Sites of Laplace noise, Laplace priors, hinge loss and quantiles.


class LaplaceLoss(SiteLoss):
    """Of Laplace noise of scale b at y [N, L], and of other losses with one kink.

    With t = (h - y) / sigma, and c = a = 0 for Laplace noise,

        f = log 2 b + (2 sigma phi(t) + (h - y) (2 Phi(t) - 1)) / b + c (h - y) + a

    But for c it is linear along rays from (h, sigma) = (y, 0), so the dual objective has a maximum
    for rho > 0 only.
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
    def _slope(self) -> tf.Tensor:
        return tf.zeros([], self.Y.dtype)

    def _offset(self) -> float:
        return 0.0

    @property
    def lower(self) -> tf.Tensor:
        return -tf.ones_like(self.Y) / self._scale + self._slope

    @property
    def upper(self) -> tf.Tensor:
        return tf.ones_like(self.Y) / self._scale + self._slope

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        residual, size = h - self.Y, tf.maximum(tf.abs(sigma), LEAST_DEVIATION)
        even = expected_laplace_loss(residual, size, self._scale)
        return even + self._slope * residual + self._offset()  # (V32) for the hinge

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        size, sign, scale = tf.maximum(tf.abs(sigma), LEAST_DEVIATION), tf.sign(sigma), self._scale
        t = tf.clip_by_value((h - self.Y) / size, -40.0, 40.0)
        slope = 2.0 * tf.exp(-0.5 * tf.square(t)) / (_SQRT_2_PI * scale)  # f_sigma
        bend = slope / size
        d_h = tf.math.erf(t / _SQRT_2) / scale + self._slope
        return Expansion(
            self.value(h, sigma), d_h, sign * slope, bend, -sign * t * bend, tf.square(t) * bend
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self.Y + tf.zeros_like(alpha)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        """The maximum of `dual_objective` over sigma >= sigma_k / 2, [N, L] each; rho > 0."""
        # the linear function moves alpha, and adds c y - a
        scale, constant, alpha = (
            self._scale, self._slope * self.Y - self._offset(), alpha - self._slope
        )  # fmt: skip
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
            value + constant,
            d_h_d_alpha,
            moves * t * sigma_k / rho,
            moves * sigma_k / rho,
        )


class HingeLoss(LaplaceLoss):
    """(1 - s h) Phi(t) + sigma phi(t), t = (1 - s h) / sigma: about s = 2 y - 1, `Y` [N, L] here.

    f_h lies in (-1, 0) for y = 1, in (0, 1) for y = 0.
    """

    def __init__(self, likelihood: Hinge, Y: TensorType) -> None:
        SiteLoss.__init__(self, 2.0 * site_labels(Y) - 1.0)

    @property
    def _scale(self) -> tf.Tensor:
        return tf.constant(2.0, self.Y.dtype)

    @property
    def _slope(self) -> tf.Tensor:
        return -0.5 * self.Y

    def _offset(self) -> float:
        return -math.log(4.0)


class QuantileLoss(LaplaceLoss):
    """Of a quantile q of y [N, L]: scale 2 b, c = (1/2 - q) / b, a = -log 4 q (1 - q)."""

    _likelihood: AsymmetricLaplace

    @property
    def _scale(self) -> tf.Tensor:
        return 2.0 * tf.convert_to_tensor(self._likelihood.scale)

    @property
    def _slope(self) -> tf.Tensor:
        return (0.5 - self._likelihood.quantile) / tf.convert_to_tensor(self._likelihood.scale)

    def _offset(self) -> float:
        return -self._likelihood.log_excess()


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
QUANTILE = SiteDescription(loss=QuantileLoss)
