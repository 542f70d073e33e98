"""Moments of tilted distributions: a Gaussian times a power of a label's density (C51)."""

from __future__ import annotations

__all__ = [
    "Densities", "DensityExpansion", "Tilted", "attainable", "has_closed_form", "tilted",
]  # fmt: skip

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization

from ..errors import DataError
from ..likelihoods import QuadratureLoss
from ..likelihoods.bernoulli import JITTER
from ..likelihoods.facts import (
    base_of,
    closed_tilting,
    couples_latents,
    entry_log_density,
    is_by_entry,
    name_of,
)
from ..likelihoods.laplace import log_side
from ..likelihoods.registry import site_description
from ..models import CVIGP
from ..special import inverse_mills, log_normal_cdf


def attainable(tolerance: float, dtype: tf.DType) -> float:
    """The tolerance, or 64 units of round-off if larger."""
    return max(tolerance, 64.0 * float(np.finfo(dtype.as_numpy_dtype).eps))


# ---
# Log densities of labels.


class DensityExpansion(NamedTuple):
    """Log densities l and derivatives at one u [N, L]."""

    value: tf.Tensor
    """[N, L], nats."""
    first: tf.Tensor
    """[N, L]"""
    second: tf.Tensor
    """[N, L]"""


class Densities:
    """The log densities of a model's labels, in centred latents u = f - m_0.

    An entry of Y has one latent, or with `CategoricalLogit` one per class (`couples`).
    """

    def __init__(self, model: CVIGP, method: str) -> None:
        _check_latents(model, method)
        self.X, self.Y = model.data
        self.likelihood = model.likelihood
        self.couples = couples_latents(model.likelihood)
        # Y may have a column more, of trials or codes of censoring
        self.offset = tf.broadcast_to(
            tf.cast(model.mean_function(self.X), self.X.dtype),
            [tf.shape(self.Y)[0], model.num_latent_gps],
        )

    def in_whole_labels(self, good: tf.Tensor) -> tf.Tensor:
        """True [N, L] where `good` is for all latents of the label."""
        if not self.couples:
            return good
        return tf.reduce_all(good, axis=1, keepdims=True) & tf.ones_like(good)

    def bend(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Centre and width of the log densities' bends, [N, L] each; None if not declared."""
        build = site_description(self.likelihood).loss
        if build is None:
            return None
        try:
            loss = build(self.likelihood, self.Y)
        except DataError:  # parameters that are functions of the inputs
            return None
        if not isinstance(loss, QuadratureLoss) or loss.width is None:
            return None
        return loss.centre - self.offset, loss.width

    def log_prob(self, u: tf.Tensor) -> tf.Tensor:
        """The log densities [..., N, L] in nats at u [..., N, L]; of classes, [N] at u [N, C]."""
        if self.couples:
            return self.likelihood.log_prob(self.X, self.offset + u, self.Y)
        return entry_log_density(self.likelihood, self.X, self.offset + u, self.Y)

    def expand(self, u: tf.Tensor) -> DensityExpansion:
        """The log densities and their derivatives at u [N, L]."""
        zero = tf.UnconnectedGradients.ZERO
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(u)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(u)
                value = self.log_prob(u)
            first = inner.gradient(value, u, unconnected_gradients=zero)
        return DensityExpansion(value, first, outer.gradient(first, u, unconnected_gradients=zero))


def _check_latents(model: CVIGP, method: str) -> None:
    likelihood, instead = (
        model.likelihood,
        "use ConjugateComputation, which needs expected log densities alone.",
    )
    if not (is_by_entry(base_of(likelihood)) or couples_latents(likelihood)):
        raise DataError(
            f"{method} needs one latent function and one density per label, or CategoricalLogit,"
            f" and the density of {name_of(likelihood)} is not of this form: {instead}"
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise DataError(
            f"{method} needs one latent function per label, and the kernel LinearCoregionalization"
            f" mixes them: {instead}"
        )


# ---


# With log Z^ = log int N(u; m_c, v_c) p(y | u)^alpha du, mean and variance are m_c + v_c d1 and v_c
# + v_c^2 d2, d1 and d2 the derivatives of log Z^ in m_c.


_REACH = 200.0
"""Standard deviations of the cavity that the first nodes cover, on either side."""
_NEGLIGIBLE = 45.0
"""Nats below the largest weight at which a node no longer matters."""
_ZOOMS = 2  # times that the nodes close in on the mass
_TAIL = 100.0
"""Beyond, the variance of a Gaussian's tail is three terms of its series, to 5e-10 of itself."""
_FAR = -1e3
"""Below, phi / Phi is replaced by its expansion."""


class Tilted(NamedTuple):
    """log Z^ of every label, and its derivatives in the cavity's mean."""

    log_mass: tf.Tensor
    """[N, L], nats; of classes, an equal share of the label's for each."""
    first: tf.Tensor
    """[N, L]"""
    second: tf.Tensor
    """[N, L]"""


def has_closed_form(densities: Densities, power: float) -> bool:
    """True if `tilted` needs no nodes: Laplace noise, classes, and a probit with power 1."""
    return closed_tilting(densities.likelihood, power) is not None


def tilted(
    densities: Densities, power: float, mean: tf.Tensor, variance: tf.Tensor, nodes: int
) -> Tilted:
    """Moments for power alpha of the labels and cavities N(mean, variance) of u, [N, L] each."""
    form = closed_tilting(densities.likelihood, power)
    if form is None:
        return _by_quadrature(densities, power, mean, variance, nodes)
    if form == "classes":
        return _classes(densities, mean, variance)
    if form == "laplace":
        return _laplace(densities, densities.likelihood.scale, power, mean, variance)
    plain = _probit(densities, mean, variance)
    return _with_floor(plain) if form == "floored probit" else plain


def _probit(densities: Densities, mean: tf.Tensor, variance: tf.Tensor) -> Tilted:
    t, spread = 2.0 * densities.Y - 1.0, tf.sqrt(1.0 + variance)
    z = t * (densities.offset + mean) / spread  # (C54)
    r = inverse_mills(z)
    far = tf.minimum(z, _FAR)  # r (r + z) cancels there
    bend = tf.where(z < _FAR, 1.0 - 1.0 / tf.square(far), r * (r + z))
    return Tilted(log_normal_cdf(z), t * r / spread, -bend / tf.square(spread))


def _with_floor(plain: Tilted) -> Tilted:
    kept = (1.0 - 2.0 * JITTER) * tf.exp(plain.log_mass)
    share = kept / (kept + JITTER)
    first = share * plain.first
    second = share * (plain.second + tf.square(plain.first)) - tf.square(first)
    return Tilted(tf.math.log(kept + JITTER), first, second)


def _classes(densities: Densities, mean: tf.Tensor, variance: tf.Tensor) -> Tilted:
    likelihood, X, Y = densities.likelihood, densities.X, densities.Y
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        log_mass = likelihood.predict_log_density(X, densities.offset + mean, variance, Y)
    first, slope = tape.gradient(log_mass, [mean, variance])
    second = 2.0 * slope - tf.square(first)  # (C72)
    count = tf.cast(tf.shape(mean)[1], mean.dtype)
    return Tilted(log_mass[:, None] / count + tf.zeros_like(mean), first, second)


def _laplace(
    densities: Densities, scale: tf.Tensor, power: float, mean: tf.Tensor, variance: tf.Tensor
) -> Tilted:
    # With r the cavity's mean less the label, b the scale divided by the power, and z = r / sqrt
    # v_c, rho = sqrt v_c / b, the sides have mass exp(rho^2 / 2 -+ z rho) Phi(+-z - rho).
    deviation, b = tf.sqrt(variance), tf.convert_to_tensor(scale) / power
    z, rho = (densities.offset + mean - densities.Y) / deviation, deviation / b
    above, below = log_side(-z, rho), log_side(z, rho)
    log_mass = tf.reduce_logsumexp(tf.stack([above, below]), axis=0)
    shares = tf.exp(above - log_mass), tf.exp(below - log_mass)
    # the slopes of both log masses in z, and of these slopes
    (up, up_bend), (down, down_bend) = _truncated(z - rho), _truncated(-z - rho)
    slopes = up - rho, rho - down
    first = shares[0] * slopes[0] + shares[1] * slopes[1]
    second = shares[0] * shares[1] * tf.square(slopes[0] - slopes[1])
    second -= shares[0] * up_bend + shares[1] * down_bend
    density = power * tf.math.log(2.0 * tf.convert_to_tensor(scale))
    return Tilted(log_mass - density, first / deviation, second / variance)


def _truncated(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """phi / Phi at x, and the variance that a unit Gaussian loses if cut off at -x."""
    r, a = inverse_mills(x), tf.maximum(-x, _TAIL)
    left = (1.0 - (6.0 - 50.0 / tf.square(a)) / tf.square(a)) / tf.square(a)
    return r, tf.where(x < -_TAIL, 1.0 - left, r * (r + x))  # which cancels there


def _by_quadrature(
    densities: Densities, power: float, mean: tf.Tensor, variance: tf.Tensor, nodes: int
) -> Tilted:
    # Gauss-Hermite nodes would miss a narrow or distant density. With a declared bend, nodes are
    # even in t, u = place + distance sinh t.
    deviation = tf.sqrt(variance)

    def log_weights(z: tf.Tensor) -> tf.Tensor:
        value = power * densities.log_prob(mean + deviation * z) - 0.5 * tf.square(z)
        return tf.where(tf.math.is_finite(value), value, -math.inf)

    # 1) nodes that lie ever further apart, then twice evenly over what has mass
    scale = np.arcsinh(_REACH)
    z = tf.constant(
        np.sinh(np.linspace(-scale, scale, nodes))[:, None, None], mean.dtype
    ) + tf.zeros_like(mean)
    evenly = tf.constant(np.linspace(0.0, 1.0, nodes)[:, None, None], mean.dtype)
    for _ in range(_ZOOMS):
        low, high = _range(z, log_weights(z))
        z = low + (high - low) * evenly
    # 2) the sums
    bend, log_slope = densities.bend(), tf.zeros_like(z)
    if bend is not None:
        place, width = (bend[0] - mean) / deviation, bend[1] / deviation
        low, high = (tf.asinh((end - place) / width) for end in (low, high))
        t = low + (high - low) * evenly
        z, log_slope = place + width * tf.sinh(t), tf.math.log(width * tf.cosh(t))
    logs = log_weights(z) + log_slope
    top = tf.reduce_max(logs, axis=0)
    weights = tf.exp(logs - top)
    total = tf.reduce_sum(weights, axis=0)
    centre = tf.reduce_sum(weights * z, axis=0) / total
    spread = tf.reduce_sum(weights * tf.square(z - centre), axis=0) / total
    log_mass = (
        top + tf.math.log(total * (high - low) / (nodes - 1.0)) - 0.5 * math.log(2.0 * math.pi)
    )
    return Tilted(log_mass, centre / deviation, (spread - 1.0) / variance)  # (C51)


def _range(z: tf.Tensor, logs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    matters = logs > tf.reduce_max(logs, axis=0) - _NEGLIGIBLE
    before, after = tf.concat([z[:1], z[:-1]], axis=0), tf.concat([z[1:], z[-1:]], axis=0)
    low = tf.reduce_min(tf.where(matters, before, z[-1]), axis=0)
    return low, tf.reduce_max(tf.where(matters, after, z[0]), axis=0)
