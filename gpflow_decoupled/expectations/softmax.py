"""E softmax(f) by one-dimensional sums."""

from __future__ import annotations

__all__ = ["best_tilt", "expected_softmax", "tilted_bound"]

import math
from functools import partial

import numpy as np
import tensorflow as tf

from .wide_softmax import wide_softmax

# ---
# An upper bound of E log sum_k exp(f_k) for independent f_k ~ N(m_k, v_k).


# For any a [C], Knowles & Minka (NIPS 2011), the diagonal case of (T5):
#
#   E lse(f) <= 1/2 sum_k a_k^2 v_k + lse(t),   t_k = m_k + (1 - 2 a_k) v_k / 2        (V33)
#
# The best a is the softmax of its t: w_k = v_k a_k is Wright's omega function of log v_k + m_k
# + v_k / 2 - A, where A, the root of a decreasing convex function, makes the a_k sum to one.


_MOST_STEPS = 100
"""Newton steps for A: four to eight for similar variances, some twenty if they differ by 1e4."""
_ACCURATE = 64.0
"""Tolerance of sum a = 1, in machine epsilons."""
_LEAST_VARIANCE = 1e-8
"""Below, the tilt is the softmax of the means to all digits."""
_FARTHEST = -80.0
"""Below, omega(y) = e^y is negligible, but still a number in single precision."""


def tilted_bound(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return the bound [...] on E log sum_k exp(f_k) in nats, for m, v [..., C].

    Derivatives are at fixed a, exact for the best a.
    """
    a = best_tilt(mean, variance)
    t = mean + (0.5 - a) * variance
    # (V33)
    return 0.5 * tf.reduce_sum(tf.square(a) * variance, axis=-1) + tf.reduce_logsumexp(t, axis=-1)


def best_tilt(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return the a [..., C] of the lowest bound for m, v [..., C]; no gradient."""
    # Newton's method for A from max_k (m_k - v_k / 2), where no step overshoots.
    mean, variance = tf.stop_gradient(mean), tf.stop_gradient(variance)
    v = tf.maximum(variance, tf.constant(_LEAST_VARIANCE, variance.dtype))
    shifted = mean + 0.5 * v + tf.math.log(v)
    accuracy = _ACCURATE * float(np.finfo(mean.dtype.as_numpy_dtype).eps)

    def step(A: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        w = _omega(shifted - A)
        a = w / v
        excess = tf.reduce_sum(a, axis=-1, keepdims=True) - 1.0
        move = excess / tf.reduce_sum(a / (1.0 + w), axis=-1, keepdims=True)
        # a row that has converged stays, so that it does not depend on the rows beside it
        return tf.where(excess > accuracy, A + move, A), excess

    first = tf.reduce_max(mean - 0.5 * v, axis=-1, keepdims=True)
    A, _ = tf.while_loop(
        lambda _, excess: tf.reduce_any(excess > accuracy),
        step,
        (first, tf.fill(tf.shape(first), tf.constant(np.inf, mean.dtype))),
        maximum_iterations=_MOST_STEPS,
    )
    a = _omega(shifted - A) / v
    return a / tf.reduce_sum(a, axis=-1, keepdims=True)


def _omega(y: tf.Tensor) -> tf.Tensor:
    """Solve w + log w = y by two fourth-order steps (Fritsch, Shafer & Crowley 1973)."""
    y = tf.maximum(y, tf.constant(_FARTHEST, y.dtype))
    w = tf.nn.softplus(y)  # within 40 %
    for _ in range(2):
        r, p = y - w - tf.math.log(w), w + 1.0
        q = p * (p + 2.0 * r / 3.0)
        w *= 1.0 + r / p * (q - 0.5 * r) / (q - r)
    return w


# ---


# softmax_c(f) is the probability that f_c + e_c is the largest of all f_k + e_k, for independent
# Gumbel e_k with cdf G(z) = exp(-e^-z). With F_k the cdf of f_k + e_k, (V34):
#
#   E softmax_c(f) = int F_c'(t) prod_{k != c} F_k(t) dt,    F_k(t) = int N(x; m_k, v_k) G(t - x) dx
#
# Both integrals are trapezoid sums, with errors of the order of exp(-pi^2 / h) for a step h. Each
# row's lattice begins where its product begins; steps are equal, so the F_k of all rows are one
# product of matrices. Gaussians narrower than the step get Gauss-Hermite nodes.


_STEP = 0.4
"""h. A Gaussian whose standard deviation is less than h is called narrow."""
_SIZES = (96, 48), (128, 96), (192, 128), (320, 192), (480, 256), (720, 384), (1024, 384)
"""Points of t, and of x below the first t; the first pair that is long enough is taken, because XLA
refuses sizes that depend on values. The last reaches standard deviations of 23; x beyond its range
would only matter to probabilities below 1e-60.
"""
_WIDTH = 8.0
"""Standard deviations of a Gaussian that the lattice covers on either side."""
_LEFT, _RIGHT = 3.5, 25.0
"""Margins for the Gumbel distribution: G(-3.5) and 1 - G(25) are below 2e-11."""
_LARGEST, _SOFTMAX_FARTHEST = 7.0, 300.0
"""exp(-e^7) is zero, and e^300 squared is finite."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(6)
_AT_ONCE = 2**13
"""Latent functions times rows in memory at once, with a few hundred numbers each."""
_NO_VARIANCE = 1e-12
"""Below, the expectation is softmax(m) to all digits."""


def expected_softmax(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return E softmax(f) [N, C] in float64, for independent f_k ~ N(m_k, v_k).

    Exact to 1e-8; probabilities below 1e-40 may be zero (1e-10 for variances above 300). Cost: N C
    T J for T points of t and J of x: 192 and 320 at a variance of 1, 720 and 1104 at 100; above 300
    1 ms an entry. m and v are [N, C].
    """
    mean, variance = tf.cast(mean, tf.float64), tf.cast(variance, tf.float64)
    certain = tf.reduce_max(variance, axis=-1, keepdims=True) < _NO_VARIANCE
    variance = tf.maximum(variance, np.finfo(float).tiny)
    is_wide = _reach(mean, tf.sqrt(variance))[1] > _STEP * (_SIZES[-1][0] - 1)
    # Rows of the other kind get moments that any lattice reaches, and finite gradients.
    none, unit = tf.zeros_like(mean), tf.ones_like(mean)
    found = _by_lattices(tf.where(is_wide, none, mean), tf.where(is_wide, unit, variance))
    others = tf.where(is_wide, mean, none), tf.where(is_wide, variance, unit)
    wide = tf.cond(tf.reduce_any(is_wide), lambda: wide_softmax(*others), lambda: found)
    return tf.where(certain, tf.nn.softmax(mean, axis=-1), tf.where(is_wide, wide, found))


def _by_lattices(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """(V34) for m and v [N, C] that the longest lattice reaches, in blocks of rows."""
    rows, classes = tf.shape(mean)[0], mean.shape[-1]
    blocks = tf.maximum((rows * classes + _AT_ONCE - 1) // _AT_ONCE, 1)
    size = tf.maximum((rows + blocks - 1) // blocks, 1)
    padding = [[0, blocks * size - rows], [0, 0]]
    parts = [
        tf.reshape(tf.pad(part, padding), [blocks, size, classes]) for part in (mean, variance)
    ]
    found = tf.map_fn(_of_rows, parts, fn_output_signature=tf.float64)
    return tf.reshape(found, [blocks * size, classes])[:rows]


@tf.autograph.experimental.do_not_convert
def _of_rows(moments: list[tf.Tensor]) -> tf.Tensor:
    mean, variance = moments
    mean -= tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    deviation = tf.sqrt(tf.maximum(variance, np.finfo(float).tiny))
    start, span, below = _reach(mean, deviation)
    # A comparison with what is no number is false: such a row chooses no lattice for the others.
    short = [
        tf.reduce_any((span > _STEP * (above - 1)) | (below > _STEP * under))
        for above, under in _SIZES[:-1]
    ]
    index = tf.reduce_sum(tf.cast(tf.stack(short), tf.int32))
    return tf.switch_case(
        index, [partial(_on_lattice, mean, deviation, start, size) for size in _SIZES]
    )


def _reach(mean: tf.Tensor, deviation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """First t of each row [B, 1], the length of t, and of x below it; without gradients."""
    low = tf.stop_gradient(mean - _WIDTH * deviation)
    high = tf.stop_gradient(mean + _WIDTH * deviation)
    start = tf.reduce_max(low, axis=-1, keepdims=True) - _LEFT
    span = tf.reduce_max(high, axis=-1, keepdims=True) + _RIGHT - start
    return start, span, start - tf.reduce_min(low, axis=-1, keepdims=True)


def _on_lattice(
    mean: tf.Tensor, deviation: tf.Tensor, start: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """Evaluate (V34) on a grid of t from `start` [B, 1], for m and roots of v [B, C]."""
    above, under = size
    steps = _STEP * np.arange(-under, above, dtype=float)
    t = (start + steps[under:])[:, None, :]  # [B, 1, T]
    narrow = deviation < _STEP
    zeros = tf.zeros(tf.concat([tf.shape(mean), [above]], axis=0), tf.float64)
    few = tf.cond(
        tf.reduce_any(narrow),
        lambda: _by_nodes(mean, tf.minimum(deviation, _STEP), t),
        lambda: (zeros, zeros),
    )
    many = tf.cond(
        tf.reduce_all(narrow),
        lambda: (zeros, zeros),
        lambda: _by_lattice(mean - start, tf.maximum(deviation, _STEP), steps, under),
    )
    F, slope = (tf.where(narrow[..., None], left, right) for left, right in zip(few, many))
    F = tf.maximum(F, np.finfo(float).tiny)
    product = tf.exp(tf.reduce_sum(tf.math.log(F), axis=1, keepdims=True))
    p = tf.reduce_sum(slope / F * product, axis=-1)  # (V34)
    # the sum is 1 / h up to the errors of the sums
    return p / tf.reduce_sum(p, axis=-1, keepdims=True)


def _by_lattice(
    mean: tf.Tensor, deviation: tf.Tensor, x: np.ndarray, under: int
) -> tuple[tf.Tensor, tf.Tensor]:
    t = x[under:]
    rise = tf.exp(tf.constant(np.minimum(x[:, None] - t, _LARGEST)))
    G = tf.exp(-rise)
    z, step = (x - mean[..., None]) / deviation[..., None], _STEP / deviation[..., None]
    weights = step / math.sqrt(2.0 * math.pi) * tf.exp(-0.5 * tf.square(z))
    # what is below the lattice, where G is one
    rest = 0.5 * tf.math.erfc((0.5 * step - z[..., :1]) / math.sqrt(2.0))
    return rest + tf.tensordot(weights, G, 1), tf.tensordot(weights, rise * G, 1)


def _by_nodes(mean: tf.Tensor, deviation: tf.Tensor, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    F, slope = tf.zeros([], tf.float64), tf.zeros([], tf.float64)
    fall = tf.exp(tf.minimum(-t, _SOFTMAX_FARTHEST))
    for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum()):
        f = tf.clip_by_value(mean + deviation * node, -_SOFTMAX_FARTHEST, _SOFTMAX_FARTHEST)
        rise = tf.exp(f)[..., None] * fall
        part = weight * tf.exp(-rise)
        F, slope = F + part, slope + rise * part
    return F, slope
