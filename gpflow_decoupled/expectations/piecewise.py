"""The best upper bound of log(1 + e^x) by R quadratic pieces, and its expectations; Marlin, Khan & Murphy 2011.

The knots are chosen with the coefficients: every piece is tight up to the same gap epsilon, which no other R pieces beat.
On an interval, the best quadratic from above is the best uniform one, raised by its error; Remez' algorithm finds it.
The bound jumps by epsilon at its knots, so that its expectation (V5) is not convex in (h, sigma).
"""

from __future__ import annotations

__all__ = ["Pieces", "piecewise_mean", "piecewise_moments", "softplus_pieces"]

from functools import cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import brentq

from ..errors import DataError
from ..special.normal import normal_cdf
from .logit_integrals import LogitMoments

_SQRT_2_PI = np.sqrt(2.0 * np.pi)


class Pieces(NamedTuple):
    """log(1 + e^x) <= a_r x^2 + b_r x + c_r <= log(1 + e^x) + gap between knots r - 1 and r."""

    a: np.ndarray
    """[R]"""
    b: np.ndarray
    """[R]"""
    c: np.ndarray
    """[R]"""
    knots: np.ndarray
    """The finite ones [R - 1]: the outer pieces go on for ever."""
    gap: float
    """epsilon, nats"""


@cache
def softplus_pieces(number: int = 20) -> Pieces:
    """The bound with that many pieces, in about a second for 20; it is kept. Raises `DataError` unless the number is even."""
    if number < 4 or number % 2:
        raise DataError(f"A bound of {number} pieces does not exist here; use an even number of at least 4.")
    inner = number // 2 - 1
    gap = float(np.exp(brentq(lambda log_gap: _excess(np.exp(log_gap), inner), np.log(1e-9), np.log(0.69), xtol=1e-13)))
    edges = [*_tiles(gap, inner)[:inner], 0.0]
    fits = [_best_quadratic(*pair)[0] for pair in zip(edges, edges[1:])]
    left = np.array([[0.0, 0.0, gap], *fits])
    right = left[::-1] * [1.0, -1.0, 1.0] + [0.0, 1.0, 0.0]  # log(1 + e^x) = x + log(1 + e^-x)
    a, b, c = np.concatenate([left, right]).T
    return Pieces(a, b, c, np.concatenate([edges, -np.array(edges[-2::-1])]), gap)


def _tiles(gap: float, inner: int) -> list[float]:
    """Knots below 0: where the constant `gap` meets log(1 + e^x), and the ends of the inner pieces with that gap."""
    edges = [float(np.log(np.expm1(gap)))]
    for _ in range(inner):
        start = edges[-1]
        if _best_quadratic(start, 0.0)[1] <= gap:
            break
        # the cube root of a gap is nearly linear in the length of the piece
        edges.append(brentq(lambda x, s=start: _root(s, x) - np.cbrt(gap), start * (1.0 - 1e-3), 0.0, xtol=1e-14))
    return edges


def _root(left: float, right: float) -> float:
    return float(np.cbrt(_best_quadratic(left, right)[1]))


def _excess(gap: float, inner: int) -> float:
    """How much larger than needed the gap is for `inner` pieces to reach 0: the root is the best gap."""
    edges = _tiles(gap, inner)
    if len(edges) > inner:
        return edges[-1]
    return gap - _best_quadratic(edges[-1], 0.0)[1] + inner - len(edges)


def _best_quadratic(left: float, right: float) -> tuple[np.ndarray, float]:
    """Coefficients (a, b, c) of the quadratic above log(1 + e^x) on an interval with the least gap, and that gap."""
    middle, half = 0.5 * (left + right), 0.5 * (right - left)
    x = np.array([-1.0, -0.5, 0.5, 1.0])  # Chebyshev's alternation
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(30):
        system = np.stack([x**2, x, np.ones(4), signs], axis=1)
        *q, error = np.linalg.solve(system, np.logaddexp(0.0, middle + half * x))
        inner = x[1:3]
        for _ in range(4):  # Newton's method for the extremes of the error
            s = 1.0 / (1.0 + np.exp(-middle - half * inner))
            slope, bend = 2.0 * q[0] * inner + q[1] - half * s, 2.0 * q[0] - half**2 * s * (1.0 - s)
            inner = np.clip(inner - slope / bend, [-0.95, 0.05], [-0.05, 0.95])
        change, x = np.max(np.abs(inner - x[1:3])), np.array([-1.0, *inner, 1.0])
        if change < 1e-9:  # the error then is right to the square of it
            break
    a, b, c = q[0] / half**2, q[1] / half, q[2] + abs(error)
    return np.array([a, b - 2.0 * a * middle, c - b * middle + a * middle**2]), 2.0 * abs(error)


class _Terms(NamedTuple):
    """What value and derivatives share, at K = R - 1 knots."""

    h: tf.Tensor  # clipped to where its square is finite
    sigma: tf.Tensor  # its size, above 0
    u: tf.Tensor  # (t - h) / sigma [..., K]
    density: tf.Tensor  # phi(u) [..., K]
    means: tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # of a, b and c over the pieces
    steps: tuple[np.ndarray, np.ndarray, np.ndarray]  # of a, b and c at the knots [K]
    knots: np.ndarray


def piecewise_mean(h: tf.Tensor, sigma: tf.Tensor, number: int = 20) -> tf.Tensor:
    """The expectation (V5) of the bound under N(h, sigma^2), both of one shape [...]; it is even in sigma."""
    return _value(_terms(h, sigma, number))


def piecewise_moments(h: tf.Tensor, sigma: tf.Tensor, number: int = 20) -> LogitMoments:
    """The expectation (V5) and its derivatives (V6), (V3) at h and sigma of one shape [...]; R operations an element."""
    terms = _terms(h, sigma, number)
    size, u, (a, b, c), t = terms.sigma, terms.u, terms.steps, terms.knots
    jump, bend, turn = a * t**2 + b * t + c, 2.0 * a * t + b, 2.0 * a
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
        _value(terms), d_h, signed * d_hh, d_hh, signed * d_hhh, d_hh + tf.square(size) * d_hhhh
    )  # (V3)


def _terms(h: tf.Tensor, sigma: tf.Tensor, number: int) -> _Terms:
    dtype = h.dtype.as_numpy_dtype
    a, b, c, knots = (array.astype(dtype) for array in softplus_pieces(number)[:4])
    large, small = (1e100, 1e-6) if h.dtype == tf.float64 else (1e15, 1e-3)
    h, size = tf.clip_by_value(h, -large, large), tf.clip_by_value(tf.abs(sigma), small, large)
    u = tf.clip_by_value((knots - h[..., None]) / size[..., None], -40.0, 40.0)
    below, above = normal_cdf(u), normal_cdf(-u)
    zero, one = tf.zeros_like(u[..., :1]), tf.ones_like(u[..., :1])
    left, right = tf.concat([zero, below], -1), tf.concat([below, one], -1)
    left_rest, right_rest = tf.concat([one, above], -1), tf.concat([above, zero], -1)
    mass = tf.where(left < 0.5, right - left, left_rest - right_rest)  # from the tail that does not cancel
    density = tf.exp(-0.5 * tf.square(u)) / _SQRT_2_PI
    means = (_sum(mass, a), _sum(mass, b), _sum(mass, c))
    return _Terms(h, size, u, density, means, (np.diff(a), np.diff(b), np.diff(c)), knots)


def _value(terms: _Terms) -> tf.Tensor:
    """(V5), with the sums of phi over the pieces turned into sums over the knots."""
    h, sigma, (a, b, c), (step_a, step_b, _) = terms.h, terms.sigma, terms.means, terms.steps
    ends = _sum(terms.density, step_a * terms.knots + step_b) + h * _sum(terms.density, step_a)
    return (tf.square(h) + tf.square(sigma)) * a + h * b + c + sigma * ends  # (V5)


def _sum(values: tf.Tensor, weights: np.ndarray) -> tf.Tensor:
    """[..., K] and [K] -> [...]."""
    return tf.tensordot(values, weights, 1)
