"""Bounds of log(1 + e^x) by R quadratic pieces."""

# Marlin, Khan & Murphy 2011. All pieces have the same gap above the function. The best bound, by
# Remez' algorithm, jumps at the knots, so its expectation (V5) is not convex. In the convex bound,
# (V28), each piece meets the function at both ends, with its slope at the outer one; the gap is
# about twice as large.

from __future__ import annotations

__all__ = ["Pieces", "piecewise_mean", "piecewise_moments", "softplus_pieces"]

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import brentq
from scipy.special import expit

from ..errors import DataError
from ..special.normal import normal_cdf
from .logit_integrals import LogitMoments

_SQRT_2_PI = np.sqrt(2.0 * np.pi)
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
    return _value(_terms(h, sigma, number, convex))


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
        _value(terms), d_h, signed * d_hh, d_hh, signed * d_hhh, d_hh + tf.square(size) * d_hhhh
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


def _value(terms: _Terms) -> tf.Tensor:
    """(V5) [...], with the sums of phi over the pieces rearranged to sums over the knots."""
    h, sigma, (a, b, c), (step_a, step_b, _) = terms.h, terms.sigma, terms.means, terms.steps
    ends = _sum(terms.density, step_a * terms.knots + step_b) + h * _sum(terms.density, step_a)
    return (tf.square(h) + tf.square(sigma)) * a + h * b + c + sigma * ends  # (V5)


def _sum(values: tf.Tensor, weights: np.ndarray) -> tf.Tensor:
    return tf.tensordot(values, weights, 1)
