"""Which kernels are state spaces, and how they combine."""

from __future__ import annotations

__all__ = [
    "KERNELS", "StateSpace", "added", "constant", "cosine", "matern", "multiplied", "periodic",
    "refuse_kernel", "resized", "series_error", "series_error_of", "state_space",
]  # fmt: skip

import functools
import math
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

from ..errors import DataError

# ---
# Matrices of a linear stochastic differential equation.


class StateSpace(NamedTuple):
    """A stationary process f = h . x whose state x [d] is Markov.

    Over a step: x' = A x + q, q ~ N(0, Q), with Q = P - A P A^T.
    """

    A: tf.Tensor
    """[N, d, d] for N steps."""
    Q: tf.Tensor
    """[N, d, d]."""
    P: tf.Tensor
    """Covariance of x at any input [d, d]."""
    h: np.ndarray
    """[d]."""

    @property
    def size(self) -> int:
        """d, the number of states."""
        return len(self.h)


def added(left: StateSpace, right: StateSpace) -> StateSpace:
    """The sum of two independent processes: their states one after the other."""
    size = left.size + right.size
    first, last = resized(left, size), resized(right, size, before=left.size)
    A, Q, P = (a + b for a, b in zip(first[:3], last[:3]))
    return StateSpace(A, Q, P, first.h + last.h)


def multiplied(left: StateSpace, right: StateSpace) -> StateSpace:
    """A process whose covariance is the product: its states are products of theirs."""
    A, P = _kron(left.A, right.A), _kron(left.P, right.P)
    # P x P' - (P - Q) x (P' - Q'), by sums of matrices that are positive semi-definite
    Q = _kron(left.Q, right.P) + _kron(left.P - left.Q, right.Q)
    return StateSpace(A, Q, P, np.kron(left.h, right.h))


def resized(space: StateSpace, size: int, before: int = 0) -> StateSpace:
    """The process with further states that are zero, `before` of them in front."""
    ends = [before, size - before - space.size]
    A, Q, P = (tf.pad(one, [[0, 0]] * (one.shape.rank - 2) + [ends, ends]) for one in space[:3])
    return StateSpace(A, Q, P, np.pad(space.h, ends))


def _kron(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    size = int(left.shape[-1]) * int(right.shape[-1])
    return tf.reshape(product, tf.concat([tf.shape(product)[:-4], [size, size]], axis=0))


# ---
# Matern kernels of orders 1/2, 3/2 and 5/2 as state spaces.


# With p = nu - 1/2 and the rate lambda = (2 nu)^1/2 / lengthscale, f solves (d/dt + lambda)^(p+1) f
# = white noise. In the time s = lambda t the states f, f', ..., f^(p) have F = N - 1, N nilpotent:
#
#   A(s) = exp(-s) sum_k N^k s^k / k!,   Q(s) = sigma^2 q integral_0^s b(r) b(r)^T exp(-2 r) dr
#
# where b is the last column of the sum, a vector of polynomials. P - A P A^T would lose all digits
# of Q over short steps, where its first entry is of order s^(2 p + 1).


_TERMS = 18
"""Of the series of an incomplete gamma function at arguments below one: the rest is below 1e-16."""

_FAR = 1e3
"""Where e^-s is zero in floats; powers of a much larger s are infinite."""


class _Constants(NamedTuple):
    powers: np.ndarray
    """N^k / k! [p + 1, d, d]"""
    P: np.ndarray
    noise: np.ndarray
    """Coefficients [2 p + 1, d, d] of Q in the incomplete gamma functions of 1, ..., 2 p + 1."""


def matern(p: int, variance: tf.Tensor, rate: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """The Matern process of order p + 1/2.

    :param p: 0, 1, 2, ...
    :param variance: sigma^2, a scalar.
    :param rate: lambda, a scalar; (2 p + 1)^1/2 / lengthscale.
    :param steps: between inputs [N], not negative.
    """
    s, constants = tf.minimum(rate * steps, _FAR), _constants(p)
    powers = tf.stack(_powers(s, p), axis=-1) * tf.exp(-s)[:, None]
    A = tf.tensordot(powers, tf.constant(constants.powers, s.dtype), 1)
    Q = variance * tf.tensordot(
        _incomplete_gammas(2 * p + 1, 2.0 * s), tf.constant(constants.noise, s.dtype), 1
    )
    return StateSpace(A, Q, variance * tf.constant(constants.P, s.dtype), np.eye(p + 1)[0])


@functools.cache
def _constants(p: int) -> _Constants:
    d = p + 1
    F = np.eye(d, k=1)
    F[-1] = [-math.comb(d, k) for k in range(d)]
    nilpotent = F + np.eye(d)
    powers = np.stack([np.linalg.matrix_power(nilpotent, k) / math.factorial(k) for k in range(d)])
    last = powers[:, :, -1]
    integrals = np.zeros((2 * p + 1, d, d))
    for i in range(d):
        for j in range(d):
            integral = math.factorial(i + j) / 2 ** (i + j + 1)  # of r^(i + j) exp(-2 r)
            integrals[i + j] += integral * np.outer(last[i], last[j])
    P = integrals.sum(axis=0)  # the integrals over all times
    return _Constants(powers, P / P[0, 0], integrals / P[0, 0])


def _incomplete_gammas(count: int, z: tf.Tensor) -> tf.Tensor:
    # The last one by its series for small z; the others by adding positive terms to it.
    small = tf.minimum(z, 1.0)
    series = tf.ones_like(z)
    for term in range(_TERMS, 0, -1):
        series = 1.0 + series * small / (count + term)
    first = _powers(small, count)[-1] * tf.exp(-small) * series / math.factorial(count)
    powers = _powers(z, count - 1)
    weights = [power * tf.exp(-z) / math.factorial(k) for k, power in enumerate(powers)]
    found = [tf.where(z < 1.0, first, 1.0 - tf.add_n(weights))]
    for k in range(count - 1, 0, -1):
        found.append(found[-1] + weights[k])
    return tf.stack(found[::-1], axis=-1)


def _powers(z: tf.Tensor, last: int) -> list[tf.Tensor]:
    """1, z, ..., z^last; the gradient of z**0 at zero is not a number."""
    powers = [tf.ones_like(z)]
    for _ in range(last):
        powers.append(powers[-1] * z)
    return powers


# ---
# Constants, cosines and periodic kernels as state spaces.


# Solin & Sarkka 2014: exp(z (cos(w t) - 1)) = sum_j a_j cos(j w t), with non-negative a_j that fall
# faster than any power, and a cosine is a rotation of two states.


_NODES = 64
"""Nodes of the Fourier integrals, beside four for each term; the error is a term of that order."""


def constant(variance: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """A constant with the variance [], over steps [N]."""
    A = tf.ones_like(steps)[:, None, None]
    return StateSpace(A, tf.zeros_like(A), tf.reshape(variance, [1, 1]), np.ones(1))


def cosine(variance: tf.Tensor, rate: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """The kernel variance cos(rate t), over steps [N]."""
    c, s = tf.cos(rate * steps), tf.sin(rate * steps)
    A = tf.stack([tf.stack([c, -s], axis=-1), tf.stack([s, c], axis=-1)], axis=-2)
    P = variance * tf.eye(2, dtype=steps.dtype)
    return StateSpace(A, tf.zeros_like(A), P, np.eye(2)[0])


def periodic(kernel: gpflow.kernels.Periodic, steps: tf.Tensor, harmonics: int) -> StateSpace:
    """The first terms of the cosine series of a periodic kernel, 2 `harmonics` + 1 states.

    :param kernel: with a squared exponential base.
    :param steps: between inputs [N].
    :param harmonics: J; see `series_error`.
    """
    amplitudes = kernel.base_kernel.variance * _series(kernel, harmonics)
    rate = 2.0 * math.pi / tf.reshape(kernel.period, [])
    terms = [constant(amplitudes[0], steps)]
    terms += [cosine(amplitudes[j], j * rate, steps) for j in range(1, harmonics + 1)]
    return functools.reduce(added, terms)


def series_error(kernel: gpflow.kernels.Periodic, harmonics: int) -> tf.Tensor:
    """The largest error of a covariance that a cosine series makes, as a share of the variance, [].

    The sum of the terms left out: with 7 harmonics 2e-12, 8e-8 and 5e-4 for lengthscales 1, 1/2 and
    1/4.
    """
    return tf.maximum(1.0 - tf.reduce_sum(_series(kernel, harmonics)), 0.0)


def _series(kernel: gpflow.kernels.Periodic, harmonics: int) -> tf.Tensor:
    """The coefficients a_0, ..., a_J [J + 1], by the trapezium rule, which is exact here."""
    z = 0.25 / tf.square(tf.reshape(kernel.base_kernel.lengthscales, []))
    nodes = 4 * harmonics + _NODES
    angles = 2.0 * np.pi * np.arange(nodes) / nodes
    values = tf.exp(z * tf.constant(np.cos(angles) - 1.0, z.dtype))
    waves = np.cos(np.arange(harmonics + 1)[:, None] * angles) * (2.0 / nodes)
    waves[0] *= 0.5
    return tf.maximum(tf.linalg.matvec(tf.constant(waves, z.dtype), values), 0.0)


# ---


KERNELS = (
    "Matern12, Matern32, Matern52, Exponential, Cosine, Constant, Periodic of a"
    " SquaredExponential, and sums and products of them"
)
_ORDERS: dict[type[Kernel], tuple[int, float]] = {
    kernels.Matern12: (0, 1.0),
    kernels.Exponential: (0, 0.5),
    kernels.Matern32: (1, math.sqrt(3.0)),
    kernels.Matern52: (2, math.sqrt(5.0)),
}
"""p of the Matern order p + 1/2, and the rate times the lengthscale."""


def state_space(kernel: Kernel, steps: tf.Tensor, harmonics: int) -> StateSpace:
    """The state space of a kernel on a line.

    :param kernel: see `refuse_kernel`.
    :param steps: between inputs [N], not negative.
    :param harmonics: terms of the cosine series of each periodic kernel.
    :raises DataError: for a kernel without a state space.

    Cost: N d^2 for d states: order plus 1/2 for a Matern kernel, 2 `harmonics` + 1 for a periodic
    one; sums add, products multiply them. Example::

        space = state_space(gpflow.kernels.Matern32(), tf.constant([0.1, 0.3]), 7)
    """
    refuse_kernel(kernel)
    if type(kernel) in (kernels.Sum, kernels.Product):
        parts = [state_space(part, steps, harmonics) for part in kernel.kernels]
        return functools.reduce(added if type(kernel) is kernels.Sum else multiplied, parts)
    if type(kernel) in _ORDERS:
        p, rate = _ORDERS[type(kernel)]
        return matern(p, kernel.variance, rate / _scalar(kernel.lengthscales), steps)
    if type(kernel) is kernels.Cosine:
        rate = 2.0 * math.pi / _scalar(kernel.lengthscales)
        return cosine(kernel.variance, rate, steps)
    if type(kernel) is kernels.Periodic:
        return periodic(kernel, steps, harmonics)
    return constant(kernel.variance, steps)


def refuse_kernel(kernel: Kernel) -> None:
    """Raise `DataError` for a kernel without a state space, naming the models that take it."""
    if type(kernel) in (kernels.Sum, kernels.Product):
        for part in kernel.kernels:
            refuse_kernel(part)
        return
    kind = type(kernel)
    periodic_of = kind is kernels.Periodic and type(kernel.base_kernel)
    if kind in _ORDERS or kind in (kernels.Cosine, kernels.Constant):
        return
    if periodic_of is kernels.SquaredExponential:
        return
    name = kind.__name__ if not periodic_of else f"Periodic({periodic_of.__name__})"
    raise DataError(
        f"The kernel {name} has no state space: use {KERNELS}; or, for up to some thousand rows, a"
        " CVIGP, and for more an NNGP, which take any kernel."
    )


def series_error_of(kernel: Kernel, harmonics: int) -> float:
    """The largest `series_error` of the periodic kernels in a kernel; zero if there are none."""
    if type(kernel) in (kernels.Sum, kernels.Product):
        return max(series_error_of(part, harmonics) for part in kernel.kernels)
    return float(series_error(kernel, harmonics)) if type(kernel) is kernels.Periodic else 0.0


def _scalar(parameter: tf.Tensor) -> tf.Tensor:
    return tf.reshape(parameter, [])
