"""E log(1 + e^eta), eta ~ N(h, sigma^2), and its derivatives, to 1e-12 at any sigma."""

# Below sigma = 1, Gauss-Hermite quadrature with 40 nodes is exact to all digits, derivatives (V2)
# included. Above, with u = sigma omega, t = h / sigma, and k(omega) = pi omega / sinh(pi omega),
# (V4):
#
#   E = sigma phi(t) + h Phi(t)
#       + sigma / pi int_0^inf cos(u t) e^(-u^2/2) (1 - k(u / sigma)) / u^2 du
#
# The first two terms are E max(eta, 0). One trapezoid grid in u, with a period in h of at least 18
# sigma + 60, serves every sigma >= 1.

from __future__ import annotations

__all__ = ["LogitMoments", "log_sigmoid_mean", "softplus_mean", "softplus_moments"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.polynomial.hermite_e import hermegauss

from ..special.hyperbolic import x_over_sinh_and_rest
from ..special.normal import normal_cdf

CROSSOVER = 1.0
"""The least sigma for which the Fourier integral is used."""
_HERMITE = 40
_LAST = 8.75
"""The largest u: e^(-u^2/2) u^2 is below 1e-15 there."""
_FINE, _COARSE = 16, 7  # a product of two grids takes 23 waves for 112 nodes
_NODES = _FINE * _COARSE
_STEP = 2.0 * np.pi * CROSSOVER / (18.0 * CROSSOVER + 60.0)
_SMALL = 1e-4
"""Smaller probabilities, with sigma > 7 and h < -3.5 sigma, lose digits as a difference."""
_BLOCK = 4096
"""Elements per block, about 40 MB."""
_SQRT_2_PI = np.sqrt(2.0 * np.pi)
assert _STEP * (_NODES - 1) > _LAST


class LogitMoments(NamedTuple):
    """F(h, sigma) = E log(1 + e^eta) and its derivatives in h and s = sigma, of the shape of h."""

    value: tf.Tensor
    d_h: tf.Tensor
    d_s: tf.Tensor
    d_hh: tf.Tensor
    d_hs: tf.Tensor
    d_ss: tf.Tensor


def softplus_moments(h: tf.Tensor, sigma: tf.Tensor) -> LogitMoments:
    """Return F and its derivatives at h, sigma of the same shape [...]; any sign of sigma."""
    return LogitMoments(
        *_chosen(
            h,
            sigma,
            _hermite_moments,
            _fourier_moments,
            odd=(False, False, True, False, True, False),
        )
    )


def softplus_mean(h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Return F at h, sigma of the same shape [...]; its gradient is (d_h, d_s)."""
    # One set of integrals serves the value and its slopes: a graph of 500 labels is traced in half
    # the time, and a step with a gradient needs one in place of two.

    @tf.custom_gradient
    def mean(h: tf.Tensor, sigma: tf.Tensor) -> tuple:
        here = softplus_moments(h, sigma)

        @tf.custom_gradient
        def slopes(h: tf.Tensor, sigma: tf.Tensor) -> tuple:
            def curvatures(by_h: tf.Tensor, by_s: tf.Tensor) -> tuple:
                again = softplus_moments(h, sigma)  # differentiable in turn
                return by_h * again.d_hh + by_s * again.d_hs, by_h * again.d_hs + by_s * again.d_ss

            return (here.d_h, here.d_s), curvatures

        def gradient(upstream: tf.Tensor) -> tuple:
            d_h, d_s = slopes(h, sigma)
            return upstream * d_h, upstream * d_s

        return here.value, gradient

    return mean(h, sigma)


def log_sigmoid_mean(h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Return log E s(eta), s the logistic function, at h and sigma > 0 [...], to all digits."""
    # For small probabilities e^(-eta) s(eta) = s(-eta) reflects h below -sigma^2 / 2 to above it.
    # If still small, eta is tilted to mean 0.
    reflected = h < -0.5 * tf.square(sigma)
    offset = tf.where(reflected, h + 0.5 * tf.square(sigma), tf.zeros_like(h))
    h = tf.where(reflected, -h - tf.square(sigma), h)
    probability = softplus_moments(h, sigma).d_h
    small = probability < _SMALL
    direct = tf.math.log(tf.clip_by_value(probability, _SMALL, 1.0))
    safe = tf.maximum(sigma, 7.0)
    return offset + tf.where(small, _tilted(tf.minimum(h, -3.5 * safe), safe), direct)


def _tilted(h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """log E s(eta) [...] by tilting, for -sigma^2 / 2 <= h <= -3.5 sigma and sigma >= 7."""
    weights, u = _weights(h)
    a = tf.clip_by_value(-h / tf.square(sigma), 1e-30, 0.5)
    sine, y = tf.sin(np.pi * a)[..., None], np.pi * u / sigma[..., None]
    share = tf.cosh(y) / (tf.square(sine) + tf.square(tf.sinh(y)))
    integral = np.pi * tf.linalg.matvec(share, weights) * sine[..., 0] / sigma
    return tf.math.log(integral) - 0.5 * tf.square(h / sigma)


Rule = Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]]
"""(h, sigma > 0), [M] each -> a list of results, [M] each."""


def _chosen(
    h: tf.Tensor, sigma: tf.Tensor, hermite: Rule, fourier: Rule, odd: tuple[bool, ...]
) -> list[tf.Tensor]:
    shape, h, size = tf.shape(h), tf.reshape(h, [-1]), tf.abs(tf.reshape(sigma, [-1]))
    large = size >= CROSSOVER

    def none() -> list[tf.Tensor]:
        return [tf.zeros_like(h) for _ in odd]

    def by(rule: Rule, size: tf.Tensor) -> Callable[[], list[tf.Tensor]]:
        return lambda: _by_blocks(rule, h, size, len(odd))

    above = tf.cond(tf.reduce_any(large), by(fourier, tf.maximum(size, CROSSOVER)), none)
    below = tf.cond(tf.reduce_all(large), none, by(hermite, tf.minimum(size, CROSSOVER)))
    sign = tf.sign(tf.reshape(sigma, [-1]))
    results = [tf.where(large, *pair) for pair in zip(above, below)]
    return [tf.reshape(sign * part if flip else part, shape) for part, flip in zip(results, odd)]


def _by_blocks(rule: Rule, h: tf.Tensor, sigma: tf.Tensor, results: int) -> list[tf.Tensor]:
    if h.shape[0] is not None and h.shape[0] <= _BLOCK:
        return rule(h, sigma)
    size = tf.shape(h)[0]
    block = tf.clip_by_value(size, 1, _BLOCK)
    missing = -size % block
    padded = (tf.pad(h, [[0, missing]]), tf.pad(sigma, [[0, missing]], constant_values=CROSSOVER))
    rows = tuple(tf.reshape(array, [-1, block]) for array in padded)
    parts = tf.map_fn(
        lambda row: rule(*row), rows, fn_output_signature=[h.dtype] * results, parallel_iterations=1
    )
    return [tf.reshape(part, [-1])[:size] for part in parts]


def _nodes(h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, np.ndarray, np.ndarray]:
    z, weights = hermegauss(_HERMITE)
    z = z.astype(h.dtype.as_numpy_dtype)
    return h[:, None] + sigma[:, None] * z, z, (weights / weights.sum()).astype(z.dtype)


def _hermite_moments(h: tf.Tensor, sigma: tf.Tensor) -> list[tf.Tensor]:
    eta, z, weights = _nodes(h, sigma)
    s = tf.sigmoid(eta)
    first = tf.matmul(s, np.stack([weights, weights * z], axis=1))  # (V2)
    second = tf.matmul(
        s * tf.sigmoid(-eta), np.stack([weights, weights * z, weights * z**2], axis=1)
    )  # (V2)
    value = tf.linalg.matvec(tf.nn.softplus(eta), weights)  # (V2)
    return [value, *tf.unstack(first, axis=1), *tf.unstack(second, axis=1)]


def _value(h: tf.Tensor, sigma: tf.Tensor, cosine: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    t, density, mass = _normal(h, sigma)
    integral = tf.linalg.matvec(cosine * share, _weights(h)[0])
    # (V4)
    return sigma * density + tf.where(t < -40.0, tf.zeros_like(h), h) * mass + integral / sigma


def _fourier_moments(h: tf.Tensor, sigma: tf.Tensor) -> list[tf.Tensor]:
    cosine, sine = _waves(h, sigma)
    k, share = _kernel(sigma)
    weights, u = _weights(h)
    mass = _normal(h, sigma)[2]
    # k is the characteristic function of the logistic density, the second derivative of log(1 +
    # e^x): from there on the derivatives have no other term
    d_h = mass - tf.linalg.matvec(sine * share, weights * u) / tf.square(sigma)
    even = (
        tf.matmul(cosine * k, np.stack([weights, weights * (1.0 - u**2)], axis=1)) / sigma[:, None]
    )
    odd = tf.linalg.matvec(sine * k, weights * u) / sigma
    curvature = tf.maximum(even[:, 0], 0.0)
    # (V3), (V4)
    return [
        _value(h, sigma, cosine, share),
        d_h,
        sigma * curvature,
        curvature,
        -odd,
        even[:, 1],
    ]


def _grid() -> tuple[np.ndarray, np.ndarray]:
    u = _STEP * np.arange(_NODES)
    weights = _STEP / np.pi * np.exp(-0.5 * u**2)
    weights[0] *= 0.5
    return u, weights


def _weights(like: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    u, weights = (array.astype(like.dtype.as_numpy_dtype) for array in _grid())
    return weights, u


def _normal(h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    t = tf.clip_by_value(h / sigma, -50.0, 50.0)
    return t, tf.exp(-0.5 * tf.square(t)) / _SQRT_2_PI, normal_cdf(t)


def _waves(h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    reach = 9.0 + 30.0 / sigma
    phase = _STEP * tf.clip_by_value(h / sigma, -reach, reach)[:, None]
    fine = phase * np.arange(_FINE, dtype=h.dtype.as_numpy_dtype)
    coarse = phase * (_FINE * np.arange(_COARSE, dtype=h.dtype.as_numpy_dtype))
    c, s = tf.cos(fine)[:, None, :], tf.sin(fine)[:, None, :]
    C, S = tf.cos(coarse)[:, :, None], tf.sin(coarse)[:, :, None]
    return tf.reshape(C * c - S * s, [-1, _NODES]), tf.reshape(S * c + C * s, [-1, _NODES])


def _kernel(sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    x = tf.cast(np.pi * _grid()[0], sigma.dtype) / sigma[:, None]
    k, share = x_over_sinh_and_rest(x)
    return k, np.pi**2 * share
