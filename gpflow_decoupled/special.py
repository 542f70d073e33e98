"""Functions of psi' without cancellation."""

from __future__ import annotations

__all__ = [
    "gamma_shape", "hermite_lookup", "inverse_mills", "log_normal_cdf",
    "normal_cdf", "owens_t", "polygammas", "trigamma", "trigamma_defect", "trigamma_excess",
    "with_slopes", "x_over_sinh", "x_over_sinh_and_rest",
]  # fmt: skip

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from .probability import tfp

# ---
# Values with hand-written derivatives.


def with_slopes(value: tf.Tensor, *arguments: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Return `value` [...] with the first derivative s in each argument x, replacing a poor
    gradient.

    There are no second derivatives in x.

    :param value: [...]; its gradient in other variables is kept.
    :param arguments: pairs (x, s) that broadcast to the shape of `value`; x must be finite.
    """
    # with `tf.custom_gradient`, each caller would have to sum over broadcast axes
    for x, slope in arguments:
        value += tf.stop_gradient(slope) * (x - tf.stop_gradient(x))
    return value


# ---
# Hermite interpolation on a regular grid.


_QUINTIC = [
    [1, 0, 0, -10, 15, -6],
    [0, 1, 0, -6, 8, -3],
    [0, 0, 0.5, -1.5, 1.5, -0.5],
    [0, 0, 0, 10, -15, 6],
    [0, 0, 0, -4, 7, -3],
    [0, 0, 0, 0.5, -1, 0.5],
]
"""Rows: value, slope and curvature at the left end, then at the right end."""


def hermite_lookup(tables: Sequence[tf.Tensor], step: float, x: tf.Tensor) -> tf.Tensor:
    """Interpolate f from f, f' and f'' on the grid 0, step, ..., (J - 1) step.

    The error is step^6 / 46080 of the sixth derivative; `tfp.math.interp_regular_1d_grid` is
    linear. Differentiable in x and the tables.

    :param tables: f, f' and f'' on the grid, [..., J] each.
    :param x: [...], broadcasts with the leading axes of the tables; clipped to the grid.
    """
    cells = tf.stack([table * step**order for order, table in enumerate(tables)], axis=-1)
    polynomials = np.array(_QUINTIC)
    J = tables[0].shape[-1]
    ends = tf.concat([cells[..., :-1, :], cells[..., 1:, :]], axis=-1)
    # The powers of every cell, so that x costs a single gather. Of rank 2, because TensorFlow's
    # float32 product of a tensor of rank 4 and a broadcast matrix writes out of bounds (issues
    # 117700 and 123109).
    rows = tf.reshape(ends, [-1, polynomials.shape[0]])
    powers = tf.matmul(rows, tf.constant(polynomials, x.dtype))
    place = tf.clip_by_value(x / step, 0.0, J - 1.0)
    cell = tf.minimum(tf.cast(place, tf.int32), J - 2)
    t = place - tf.cast(cell, x.dtype)
    lead = tf.shape(tables[0])[:-1]
    index = tf.reshape((J - 1) * tf.range(tf.reduce_prod(lead)), lead) + cell
    parts = tf.unstack(tf.gather(powers, index), axis=-1)
    value = parts[-1]
    for part in reversed(parts[:-1]):
        value = value * t + part
    return value


# ---
# x / sinh x, the logistic's characteristic function.


_SMALL = 0.1  # below it, a series
_SERIES = [1 / 6, -7 / 360, 31 / 15120, -127 / 604800, 73 / 3421440]
"""(1 - x / sinh x) / x^2 in powers of x^2, for |x| < 0.1."""


def x_over_sinh(x: tf.Tensor) -> tf.Tensor:
    """Return x / sinh x, of the shape of x; 1 at zero.

    `x / tf.sinh(x)` is NaN at zero, and its gradient is NaN beyond |x| = 710.
    """
    return x_over_sinh_and_rest(x)[0]


def x_over_sinh_and_rest(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = x / sinh x and (1 - k) / x^2 (1/6 at zero), of the shape of x, without cancellation."""
    small = tf.abs(x) < _SMALL
    # each branch has its argument, harmless where the other is taken, for the sake of gradients
    safe = tf.where(small, tf.ones_like(x), tf.abs(x))
    decay = tf.exp(-safe)
    far = 2.0 * safe * decay / (1.0 - tf.square(decay))
    square = tf.square(tf.where(small, x, tf.zeros_like(x)))
    series = tf.zeros_like(x)
    for coefficient in reversed(_SERIES):
        series = series * square + coefficient
    return tf.where(small, 1.0 - square * series, far), tf.where(
        small, series, (1.0 - far) / tf.square(safe)
    )


# ---
# The normal cdf, accurate in its tails.


_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    """Return Phi(x), of the shape of x, accurate in the lower tail.

    Equal to `tfd.Normal(0, 1).cdf(x)`, which evaluates three error functions to select one.
    """
    return 0.5 * tf.math.erfc(-x / _SQRT_2)


def log_normal_cdf(u: tf.Tensor) -> tf.Tensor:
    """Return log Phi(u), of the shape of u; relative error 5e-15 (1e-6 in single precision).

    `tfd.Normal(0, 1).log_cdf(u)` has relative errors of 1e-8 at u = 5.75 (0.04 at u = 5 in single
    precision), and of 8e-11 in the gradient at u = -20.
    """
    left = tf.math.log(0.5 * _scaled_erfc(u)) - 0.5 * tf.square(u)
    return tf.where(u < 0.0, left, tf.math.log1p(-0.5 * tf.math.erfc(tf.maximum(u, 0.0) / _SQRT_2)))


def inverse_mills(u: tf.Tensor) -> tf.Tensor:
    """Return phi(u) / Phi(u), the derivative of log Phi, of the shape of u."""
    right = tf.maximum(u, 0.0)
    density = tf.exp(-0.5 * tf.square(right)) / _SQRT_2_PI
    return tf.where(u < 0.0, np.sqrt(2.0 / np.pi) / _scaled_erfc(u), density / normal_cdf(right))


def _scaled_erfc(u: tf.Tensor) -> tf.Tensor:
    return tfp.math.erfcx(-tf.minimum(u, 0.0) / _SQRT_2)


# ---
# Owen's T function, for skew normals.


_LEGENDRE = 28
"""Nodes on [0, 1]: the error is 1e-15 for |h| < 9; beyond, T is below 1e-19."""


def owens_t(h: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """Return T(h, a) = 1/2pi int_0^a exp(-h^2 (1 + x^2) / 2) / (1 + x^2) dx; absolute error 1e-15.

    :param h: [...], broadcasts with `a`; T is even in h.
    :param a: [...]; T is odd in a.
    :return: T [...], with exact first derivatives and no second; costs 28 exponentials.
    """
    # `tfp.math.owens_t` errs by up to 7e-7 for 4.8 < |h| < 7, which gives negative masses in the
    # tail of a skew normal; SciPy's has no gradient.
    h, a = h + tf.zeros_like(a), a + tf.zeros_like(h)
    height, slope = tf.abs(tf.stop_gradient(h)), tf.abs(tf.stop_gradient(a))
    steep = slope > 1.0
    inner = tf.where(steep, slope * height, height)
    ratio = tf.where(steep, 1.0 / tf.maximum(slope, 1.0), slope)
    quadrature = _owens_integral(inner, ratio)
    below, product = normal_cdf(-height), normal_cdf(-inner)
    # T(h, a) + T(ah, 1/a) = (Phi(-h) + Phi(-ah)) / 2 - Phi(-h) Phi(-ah) for h, a >= 0
    reflected = 0.5 * (below + product) - below * product - quadrature
    value = tf.sign(a) * tf.where(steep, reflected, quadrature)
    gauss = tf.exp(-0.5 * tf.square(h))
    d_h = -gauss * tf.math.erf(a * h / np.sqrt(2.0)) / np.sqrt(8.0 * np.pi)
    d_a = gauss * tf.exp(-0.5 * tf.square(a * h)) / (2.0 * np.pi * (1.0 + tf.square(a)))
    return with_slopes(tf.stop_gradient(value), (h, d_h), (a, d_a))


def _owens_integral(h: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """T for 0 <= a <= 1, h >= 0 by Gauss-Legendre, on the part where the integrand is not 0."""
    nodes, weights = np.polynomial.legendre.leggauss(_LEGENDRE)
    reach = tf.minimum(a, 9.0 / tf.maximum(h, 1e-3))
    places, shares = (tf.constant(part, h.dtype) for part in (0.5 * (nodes + 1.0), 0.5 * weights))
    half_square = -0.5 * tf.square(h)

    def add(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stretched = 1.0 + tf.square(places[i] * reach)
        return i + 1, total + shares[i] * tf.exp(half_square * stretched) / stretched

    # a loop, so that no more than one term is in memory at once
    _, total = tf.while_loop(
        lambda i, _: i < _LEGENDRE, add, (0, tf.zeros_like(h)), parallel_iterations=1
    )
    return reach * total / (2.0 * np.pi)


# ---
# psi' and psi'' of NumPy arrays.


_SHIFT = 8  # the recurrence leads to x + 8, where the series has all digits
# Bernoulli numbers: of z^-3, z^-5, ...
_TRIGAMMA = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
)
_TETRAGAMMA = (-1 / 2, 1 / 6, -1 / 6, 3 / 10, -5 / 6, 691 / 210)  # of z^-4, z^-6, ...


def polygammas(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return psi'(x) and psi''(x), of the shape of x > 0; relative error 1e-14.

    `scipy.special.zeta(2, x)` and `zeta(3, x)` take ten times as long.
    """
    x = np.asarray(x, dtype=float)
    first, second = np.zeros_like(x), np.zeros_like(x)
    for shift in range(_SHIFT):
        inverse = 1.0 / (x + shift)
        square = inverse * inverse
        first += square
        second -= 2.0 * square * inverse
    inverse = 1.0 / (x + _SHIFT)
    square = inverse * inverse
    tail_1, tail_2 = np.zeros_like(x), np.zeros_like(x)
    for one, two in zip(_TRIGAMMA[::-1], _TETRAGAMMA[::-1]):  # Horner's rule
        tail_1, tail_2 = one + square * tail_1, two + square * tail_2
    first += inverse * (1.0 + 0.5 * inverse + square * tail_1)
    second += square * (-1.0 - inverse + square * tail_2)
    return first, second


# ---


_TRIGAMMA_SERIES = (1 / 2, 1 / 6, 0.0, -1 / 30, 0.0, 1 / 42, 0.0, -1 / 30, 0.0, 5 / 66)
"""x psi'(x) - 1 in powers of 1 / x."""
_LARGE = 30.0
"""From here on the series is exact in double precision."""
_NEWTON = 8  # steps from Minka's approximation, to all digits


def trigamma(x: tf.Tensor) -> tf.Tensor:
    """Return psi'(x), of the shape of x."""
    return tf.math.polygamma(tf.ones_like(x), x)


def trigamma_excess(x: tf.Tensor) -> tf.Tensor:
    """Return x psi'(x) - 1 > 0, of the shape of x.

    It tends to 1 / (2 x); the plain difference keeps eight digits at x = 1e8.
    """
    large = x > _LARGE
    inverse = 1.0 / tf.where(large, x, _LARGE * tf.ones_like(x))
    series = tf.zeros_like(x)
    for coefficient in reversed(_TRIGAMMA_SERIES):
        series = (series + coefficient) * inverse
    near = tf.where(large, tf.ones_like(x), x)
    return tf.where(large, series, near * trigamma(near) - 1.0)


def trigamma_defect(x: tf.Tensor) -> tf.Tensor:
    """Return x - 1 / psi'(x), in (0, 1/2), of the shape of x."""
    excess = trigamma_excess(x)
    return x * excess / (1.0 + excess)


def gamma_shape(gap: tf.Tensor) -> tf.Tensor:
    """Solve log x - psi(x) = gap > 0 for the shape x of a gamma distribution; x as `gap`.

    Eight Newton steps in 1 / x from Minka's approximation; a bracketing solver needs twenty.
    """
    start = (3.0 - gap + tf.sqrt(tf.square(gap - 3.0) + 24.0 * gap)) / (12.0 * gap)

    def step(x: tf.Tensor) -> tf.Tensor:
        residual = tf.math.log(x) - tf.math.digamma(x) - gap
        return 1.0 / (1.0 / x - residual / (x * trigamma_excess(x)))

    for _ in range(_NEWTON):
        start = step(start)
    return start
