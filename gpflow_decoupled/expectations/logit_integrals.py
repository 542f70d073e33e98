"""E log(1 + e^eta), eta ~ N(h, sigma^2), and its derivatives, to 1e-12 at any sigma."""

from __future__ import annotations

__all__ = [
    "LogitMoments", "Pieces", "log_sigmoid_mean", "piecewise_mean", "piecewise_moments",
    "softplus_mean", "softplus_moments", "softplus_pieces",
]  # fmt: skip

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import expit

from ..errors import DataError
from ..special import normal_cdf, x_over_sinh_and_rest

# Below sigma = 1, Gauss-Hermite quadrature with 40 nodes is exact to all digits, derivatives (V2)
# included. Above, with u = sigma omega, t = h / sigma, and k(omega) = pi omega / sinh(pi omega),
# (V4):
#
#   E = sigma phi(t) + h Phi(t)
#       + sigma / pi int_0^inf cos(u t) e^(-u^2/2) (1 - k(u / sigma)) / u^2 du
#
# The first two terms are E max(eta, 0). One trapezoid grid in u, with a period in h of at least 18
# sigma + 60, serves every sigma >= 1.


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


# ---
# Bounds of log(1 + e^x) by R quadratic pieces.


# Marlin, Khan & Murphy 2011. All pieces have the same gap above the function. The best bound, by
# Remez' algorithm, jumps at the knots, so its expectation (V5) is not convex. In the convex bound,
# (V28), each piece meets the function at both ends, with its slope at the outer one; the gap is
# about twice as large.


_Fit = Callable[[float, float], tuple[np.ndarray, float]]
"""(left, right) -> (a, b, c) of a quadratic above log(1 + e^x) there, and its gap."""


class Pieces(NamedTuple):
    """log(1 + e^x) <= a_r x^2 + b_r x + c_r <= log(1 + e^x) + gap between knots r - 1 and r."""

    a: np.ndarray
    """[R]"""
    b: np.ndarray
    """[R]"""
    c: np.ndarray
    """[R]"""
    knots: np.ndarray
    """The finite knots [R - 1]; the outer pieces are unbounded."""
    gap: float
    """The gap epsilon, in nats."""


@cache
def softplus_pieces(number: int = 20, convex: bool = False) -> Pieces:
    """Return the best or the convex bound; about a second for 20 pieces, then cached."""
    if number < 4 or number % 2:
        raise DataError(
            f"number={number}: the number of quadratic pieces must be even and at least 4."
        )
    inner, fit = number // 2 - 1, _touching_quadratic if convex else _best_quadratic

    def excess(log_gap: float) -> float:
        return _excess(float(np.exp(log_gap)), inner, fit)

    gap = float(np.exp(brentq(excess, np.log(1e-9), np.log(0.69), xtol=1e-13)))
    edges = [*_tiles(gap, inner, fit)[:inner], 0.0]
    fits = [fit(*pair)[0] for pair in zip(edges, edges[1:])]
    left = np.array([[0.0, 0.0, gap], *fits])
    right = left[::-1] * [1.0, -1.0, 1.0] + [0.0, 1.0, 0.0]  # log(1 + e^x) = x + log(1 + e^-x)
    a, b, c = np.concatenate([left, right]).T
    return Pieces(a, b, c, np.concatenate([edges, -np.array(edges[-2::-1])]), gap)


def _tiles(gap: float, inner: int, fit: _Fit) -> list[float]:
    edges = [float(np.log(np.expm1(gap)))]
    for _ in range(inner):
        start = edges[-1]
        if fit(start, 0.0)[1] <= gap:
            break
        # the cube root of a gap is nearly linear in the length of the piece
        edges.append(
            brentq(
                lambda x, s=start: _root(s, x, fit) - np.cbrt(gap),
                start * (1.0 - 1e-3),
                0.0,
                xtol=1e-14,
            )
        )
    return edges


def _root(left: float, right: float, fit: _Fit) -> float:
    return float(np.cbrt(fit(left, right)[1]))


def _excess(gap: float, inner: int, fit: _Fit) -> float:
    edges = _tiles(gap, inner, fit)
    if len(edges) > inner:
        return edges[-1]
    return gap - fit(edges[-1], 0.0)[1] + inner - len(edges)


def _best_quadratic(left: float, right: float) -> tuple[np.ndarray, float]:
    middle, half = 0.5 * (left + right), 0.5 * (right - left)
    x = np.array([-1.0, -0.5, 0.5, 1.0])  # Chebyshev's alternation
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(30):
        system = np.stack([x**2, x, np.ones(4), signs], axis=1)
        *q, error = np.linalg.solve(system, np.logaddexp(0.0, middle + half * x))
        inner = x[1:3]
        for _ in range(4):  # Newton's method for the extremes of the error
            s = expit(middle + half * inner)
            slope, bend = 2.0 * q[0] * inner + q[1] - half * s, 2.0 * q[0] - half**2 * s * (1.0 - s)
            inner = np.clip(inner - slope / bend, [-0.95, 0.05], [-0.05, 0.95])
        change, x = np.max(np.abs(inner - x[1:3])), np.array([-1.0, *inner, 1.0])
        if change < 1e-9:  # the error is then right to the square of this
            break
    a, b, c = q[0] / half**2, q[1] / half, q[2] + abs(error)
    return _about_zero(a, b, c, middle), 2.0 * abs(error)


def _touching_quadratic(left: float, right: float) -> tuple[np.ndarray, float]:
    length, slope, at_left = right - left, expit(left), np.logaddexp(0.0, left)
    a = (np.logaddexp(0.0, right) - at_left - slope * length) / length**2  # (V28)
    x = left + 2.0 / 3.0 * length
    for _ in range(20):  # Newton's method for the greatest difference
        s = expit(x)
        x -= (2.0 * a * (x - left) + slope - s) / (2.0 * a - s * (1.0 - s))
        x = float(np.clip(x, left + 0.4 * length, left + 0.9 * length))
    gap = a * (x - left) ** 2 + slope * (x - left) + at_left - np.logaddexp(0.0, x)
    return _about_zero(a, slope, at_left, left), float(gap)


def _about_zero(a: float, b: float, c: float, centre: float) -> np.ndarray:
    return np.array([a, b - 2.0 * a * centre, c - b * centre + a * centre**2])


class _Terms(NamedTuple):
    h: tf.Tensor  # [...], clipped to where its square is finite
    sigma: tf.Tensor  # [...], the absolute value, above 0
    u: tf.Tensor  # (t - h) / sigma [..., K]
    density: tf.Tensor  # the normal density phi(u) [..., K]
    # [...] each: a, b and c averaged over the masses of the pieces
    means: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    # [K] each: the changes of a, b and c at the knots
    steps: tuple[np.ndarray, np.ndarray, np.ndarray]
    knots: np.ndarray  # [K]


def piecewise_mean(
    h: tf.Tensor, sigma: tf.Tensor, number: int = 20, convex: bool = False
) -> tf.Tensor:
    """Expectation (V5) under N(h, sigma^2), [...] as h and sigma; even in sigma; cost R."""
    return _piecewise_value(_terms(h, sigma, number, convex))


def piecewise_moments(
    h: tf.Tensor, sigma: tf.Tensor, number: int = 20, convex: bool = False
) -> LogitMoments:
    """Expectation (V5) and its derivatives (V6), (V3) in h and sigma, [...] each; cost R."""
    terms = _terms(h, sigma, number, convex)
    size, u, (a, b, c), t = terms.sigma, terms.u, terms.steps, terms.knots
    # round-off in it would be divided by sigma^4
    jump = np.zeros_like(t) if convex else a * t**2 + b * t + c
    bend, turn = 2.0 * a * t + b, 2.0 * a
    s = size[..., None]
    n0 = terms.density / s
    n1, n2, n3 = n0 * u / s, n0 * (u**2 - 1.0) / s**2, n0 * (u**3 - 3.0 * u) / s**3
    mean_a, mean_b, _ = terms.means
    inside = 2.0 * (terms.h * mean_a + size * _sum(terms.density, a)) + mean_b
    d_h = inside + _sum(n0, jump)  # (V6)
    d_hh = 2.0 * mean_a + _sum(n0, bend) + _sum(n1, jump)  # (V6)
    d_hhh = _sum(n0, turn) + _sum(n1, bend) + _sum(n2, jump)  # (V6)
    d_hhhh = _sum(n1, turn) + _sum(n2, bend) + _sum(n3, jump)  # (V6)
    signed = tf.sign(sigma) * size
    return LogitMoments(
        _piecewise_value(terms),
        d_h,
        signed * d_hh,
        d_hh,
        signed * d_hhh,
        d_hh + tf.square(size) * d_hhhh,
    )  # (V3)


def _terms(h: tf.Tensor, sigma: tf.Tensor, number: int, convex: bool) -> _Terms:
    dtype = h.dtype.as_numpy_dtype
    a, b, c, knots = (array.astype(dtype) for array in softplus_pieces(number, convex)[:4])
    large, small = (1e100, 1e-6) if h.dtype == tf.float64 else (1e15, 1e-3)
    h, size = tf.clip_by_value(h, -large, large), tf.clip_by_value(tf.abs(sigma), small, large)
    u = tf.clip_by_value((knots - h[..., None]) / size[..., None], -40.0, 40.0)
    below, above = normal_cdf(u), normal_cdf(-u)
    zero, one = tf.zeros_like(u[..., :1]), tf.ones_like(u[..., :1])
    left, right = tf.concat([zero, below], -1), tf.concat([below, one], -1)
    left_rest, right_rest = tf.concat([one, above], -1), tf.concat([above, zero], -1)
    # from the tail where digits do not cancel
    mass = tf.where(left < 0.5, right - left, left_rest - right_rest)
    density = tf.exp(-0.5 * tf.square(u)) / _SQRT_2_PI
    means = (_sum(mass, a), _sum(mass, b), _sum(mass, c))
    return _Terms(h, size, u, density, means, (np.diff(a), np.diff(b), np.diff(c)), knots)


def _piecewise_value(terms: _Terms) -> tf.Tensor:
    """(V5) [...], with the sums of phi over the pieces rearranged to sums over the knots."""
    h, sigma, (a, b, c), (step_a, step_b, _) = terms.h, terms.sigma, terms.means, terms.steps
    ends = _sum(terms.density, step_a * terms.knots + step_b) + h * _sum(terms.density, step_a)
    return (tf.square(h) + tf.square(sigma)) * a + h * b + c + sigma * ends  # (V5)


def _sum(values: tf.Tensor, weights: np.ndarray) -> tf.Tensor:
    return tf.tensordot(values, weights, 1)
