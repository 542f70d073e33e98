"""A smoothed chain between its rows."""

from __future__ import annotations

__all__ = [
    "Between", "ChainPosterior", "Filtered", "Knots", "Smoothed", "Step", "chain_posterior",
    "covariances_between", "filtered", "marginals_between", "predicted_between", "scan",
    "smoothed",
]  # fmt: skip

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

# ---
# Loops over rows, compiled by XLA.


Tensors: TypeAlias = "tuple[tf.Tensor, ...]"
Step: TypeAlias = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]
"""(carry, inputs of a row, constants) -> (new carry, other outputs of the row)."""
_FEWEST = 64
"""Fewest rows of a loop. XLA compiles a loop for a number of rows, some 0.3 s, so numbers are
rounded up, from 64 on to four sizes per power of two; at most a quarter of the rows is idle."""


def scan(
    step: Step,
    start: Tensors,
    inputs: Tensors,
    constants: Tensors = (),
    *,
    reverse: bool = False,
) -> Tensors:
    """Apply a step to row after row, and return the carries and other outputs of all rows.

    The gradient repeats each step from the stored carry. Cost: a microsecond a row and small
    matrix.

    :param step: a module-level function. A row of zeros must not change a carry, since the loop may
        be longer than the inputs.
    :param start: the carry before the first row; it has no gradient.
    :param inputs: [N, ...] each.
    :param constants: of the step, without gradient.
    :param reverse: go from the last row to the first.
    :return: the carry after each row, then the other outputs, [N, ...] each.
    """
    rows, size = tf.shape(inputs[0])[0], _rounded(inputs[0].shape[0])
    loop, back = _loops(step, len(start), reverse)
    # a tape that saw the loop itself would ask XLA for a gradient that it does not have
    start, constants = (tuple(map(tf.stop_gradient, part)) for part in (start, constants))

    @tf.custom_gradient
    def run(*given: tf.Tensor) -> tuple[Tensors, Callable[..., list[tf.Tensor]]]:
        padded = tuple(_padded(tf.stop_gradient(one), size) for one in given)
        outputs = loop(start, padded, constants)

        def pull(*upstream: tf.Tensor) -> list[tf.Tensor]:
            weights = tuple(_padded(one, size) for one in upstream)
            return [one[:rows] for one in back(start, padded, constants, outputs, weights)]

        return tuple(one[:rows] for one in outputs), pull

    return run(*inputs)


def _rounded(rows: int | None) -> int | None:
    """The number of rows of the loop; None leaves a number that is not known."""
    if rows is None:
        return None
    quarter = max(_FEWEST, 1 << max(rows - 1, 0).bit_length()) // 8
    return -(-max(rows, _FEWEST) // quarter) * quarter


def _padded(tensor: tf.Tensor, size: int | None) -> tf.Tensor:
    if size is None or tensor.shape[0] == size:
        return tensor
    rest = [[0, 0]] * (tensor.shape.rank - 1)
    return tf.pad(tensor, [[0, size - tf.shape(tensor)[0]], *rest])


@functools.cache
def _loops(step: Step, carried: int, reverse: bool) -> tuple[Callable, Callable]:
    def forward(start: Tensors, inputs: Tensors, constants: Tensors) -> Tensors:
        size = tf.shape(inputs[0])[0]
        places = _places(size, reverse)
        stores = [_store(size, one) for one in _outputs(step, start, inputs, constants)]

        def body(i: tf.Tensor, carry: Tensors, filled: list) -> tuple:
            row = places(i)
            carry, other = step(carry, tuple(one[row] for one in inputs), constants)
            return i + 1, carry, [s.write(row, value) for s, value in zip(filled, (*carry, *other))]

        _, _, stores = tf.while_loop(
            lambda i, *_: i < size, body, (tf.constant(0), start, stores), maximum_iterations=size
        )
        return tuple(one.stack() for one in stores)

    def backward(
        start: Tensors, inputs: Tensors, constants: Tensors, outputs: Tensors, weights: Tensors
    ) -> Tensors:
        size = tf.shape(inputs[0])[0]
        places = _places(size, not reverse)
        stores = [_store(size, one[0]) for one in inputs]

        def body(i: tf.Tensor, pulled: Tensors, filled: list) -> tuple:
            row = places(i)
            # the step of this row began with the carry of the row before, or with the start
            before = row + 1 if reverse else row - 1
            inside = (before >= 0) & (before < size)
            at = tf.clip_by_value(before, 0, size - 1)
            carry = tuple(tf.where(inside, one[at], first) for one, first in zip(outputs, start))
            given = tuple(one[row] for one in inputs)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*carry, *given])
                found = [part for parts in step(carry, given, constants) for part in parts]
            upstream = [one[row] for one in weights]
            upstream[:carried] = [a + b for a, b in zip(upstream, pulled)]
            gradients = tape.gradient(
                found,
                [*carry, *given],
                upstream,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            kept = [s.write(row, value) for s, value in zip(filled, gradients[carried:])]
            return i + 1, tuple(gradients[:carried]), kept

        nothing = tuple(tf.zeros_like(one) for one in start)
        _, _, stores = tf.while_loop(
            lambda i, *_: i < size, body, (tf.constant(0), nothing, stores), maximum_iterations=size
        )
        return tuple(one.stack() for one in stores)

    return tuple(tf.function(one, jit_compile=True, autograph=False) for one in (forward, backward))


def _places(size: tf.Tensor, reverse: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    return (lambda i: size - 1 - i) if reverse else (lambda i: i)


def _outputs(step: Step, start: Tensors, inputs: Tensors, constants: Tensors) -> list[tf.Tensor]:
    carry, other = step(start, tuple(one[0] for one in inputs), constants)
    return [*carry, *other]


def _store(size: tf.Tensor, like: tf.Tensor) -> tf.TensorArray:
    return tf.TensorArray(like.dtype, size=size, element_shape=like.shape)


# ---
# The Kalman filter of a chain.


# At row n, with the state x_n = A_n x_{n-1} + q_n, q_n ~ N(0, Q_n), f_n = h . x_n, and the site
# exp(nu f - tau f^2 / 2):
#
#   a = A m,  P = A V A^T + Q;   phi = h . a,  c = h . P h;   F = 1 + tau c
#   m = a + P h (nu - tau phi) / F,   V = P - P h h^T P tau / F
#
# Nothing is divided by Q or c, so duplicated inputs and rows without a site are ordinary rows.


class Filtered(NamedTuple):
    """Each row given the sites up to it."""

    mean: tf.Tensor
    """m [N, L, d]"""
    covariance: tf.Tensor
    """V [N, L, d, d]"""
    gain: tf.Tensor
    """P h [N, L, d], of the state before the row's site."""
    latent_mean: tf.Tensor
    """phi [N, L], before the row's site."""
    latent_variance: tf.Tensor
    """c [N, L], before the row's site."""


def filtered(A: tf.Tensor, Q: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> Filtered:
    """Filter the sites nu, tau [N, L] of a chain A, Q [N, L, d, d] read by h [L, d]; N L d^3."""
    start = tf.zeros_like(Q[0, :, 0]), tf.zeros_like(Q[0])
    return Filtered(*scan(_step, start, (A, Q, nu, tau), (h,)))


def _step(carry: Tensors, row: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    (mean, covariance), (A, Q, nu, tau), (h,) = carry, row, constants
    mean = tf.linalg.matvec(A, mean)
    covariance = tf.matmul(tf.matmul(A, covariance), A, transpose_b=True) + Q
    gain = tf.linalg.matvec(covariance, h)
    phi, c = tf.reduce_sum(h * mean, axis=-1), tf.reduce_sum(h * gain, axis=-1)
    F = 1.0 + tau * c
    mean += gain * ((nu - tau * phi) / F)[:, None]
    covariance -= gain[:, :, None] * gain[:, None, :] * (tau / F)[:, None, None]
    return (mean, covariance), (gain, phi, c)


# ---
# The smoother of a chain, without an inverse.


# The sites from row n on, as a function of the state N(a, P) that the earlier ones predict, have
# the gradient r_n of their log evidence by a, and minus its second derivative S_n (de Jong 1989;
# Durbin & Koopman 2012, section 4.4). With u = 1 - h (P h)^T tau / F, e = (nu - tau phi) / F,
# rho = A_{n+1}^T r_{n+1} and R = A_{n+1}^T S_{n+1} A_{n+1}:
#
#   r = h e + u rho,   S = h h^T tau / F + u R u^T
#   E f = phi + c e + (P h / F) . rho,   var f = c / F - (P h / F) . R (P h / F)


class Smoothed(NamedTuple):
    """Each row given all sites."""

    slope: tf.Tensor
    """r [N, L, d]"""
    curvature: tf.Tensor
    """S [N, L, d, d]"""
    mean: tf.Tensor
    """E f [N, L]"""
    variance: tf.Tensor
    """var f [N, L]"""


def smoothed(
    A: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor, forward: Filtered
) -> Smoothed:
    """Smooth what `filtered` found for a chain A [N, L, d, d] and sites [N, L]; N L d^3."""
    following = tf.concat([A[1:], tf.zeros_like(A[:1])], axis=0)
    start = tf.zeros_like(A[0, :, 0]), tf.zeros_like(A[0])
    rows = (following, nu, tau, forward.gain, forward.latent_mean, forward.latent_variance)
    return Smoothed(*scan(_smoothing_step, start, rows, (h,), reverse=True))


def _smoothing_step(carry: Tensors, row: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    (slope, curvature), (A, nu, tau, gain, phi, c), (h,) = carry, row, constants
    rho = tf.linalg.matvec(A, slope, transpose_a=True)
    R = tf.matmul(tf.matmul(A, curvature, transpose_a=True), A)
    F = 1.0 + tau * c
    e, g = (nu - tau * phi) / F, tau / F
    along = tf.linalg.matvec(R, gain)
    across = tf.reduce_sum(gain * rho, axis=-1), tf.reduce_sum(gain * along, axis=-1)
    slope = rho + h * (e - g * across[0])[:, None]
    mixed = h[:, :, None] * (g[:, None] * along)[:, None, :]
    own = (g + tf.square(g) * across[1])[:, None, None]
    curvature = R - mixed - tf.linalg.matrix_transpose(mixed) + own * h[:, :, None] * h[:, None, :]
    mean, variance = phi + c * e + across[0] / F, c / F - across[1] / tf.square(F)
    return (slope, curvature), (mean, variance)


# ---
# The exact posterior of a chain with sites.


class ChainPosterior(NamedTuple):
    """A chain given all its sites."""

    forward: Filtered
    backward: Smoothed
    log_partition: tf.Tensor
    """log of the integral of the prior times all sites, summed over latents, nats, a scalar."""
    ok: tf.Tensor
    """[], bool: the posterior exists."""


def chain_posterior(
    A: tf.Tensor, Q: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor
) -> ChainPosterior:
    """The posterior of x_n = A_n x_{n-1} + q_n, q_n ~ N(0, Q_n), with sites on f_n = h . x_n.

    All fields are differentiable in A, Q, nu and tau; the smoother gives the log evidence's
    gradient without another pass.

    :param A: [N, L, d, d], zero in the first row.
    :param Q: [N, L, d, d], in the first row the covariance of x_0.
    :param h: [L, d], without gradient.
    :param nu: site precisions times site means [N, L].
    :param tau: site precisions [N, L]; zero for a row without a site.

    Cost: some 6 N L d^3 multiply-adds, and memory for 8 arrays [N, L, d, d]. Example::

        posterior = chain_posterior(A, Q, h, y / noise, tf.ones_like(y) / noise)
    """
    forward = filtered(A, Q, h, nu, tau)
    backward = smoothed(A, h, nu, tau, forward)
    F = 1.0 + tau * forward.latent_variance
    ok = tf.reduce_all(F > 0.0) & tf.reduce_all(tf.math.is_finite(backward.mean))
    return ChainPosterior(forward, backward, _log_partition(A, Q, nu, tau, forward, backward), ok)


def _log_partition(
    A: tf.Tensor,
    Q: tf.Tensor,
    nu: tf.Tensor,
    tau: tf.Tensor,
    forward: Filtered,
    backward: Smoothed,
) -> tf.Tensor:
    forward = Filtered(*map(tf.stop_gradient, forward))
    backward = Smoothed(*map(tf.stop_gradient, backward))

    @tf.custom_gradient
    def value(
        A: tf.Tensor, Q: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        phi, c = forward.latent_mean, forward.latent_variance
        F = 1.0 + tau * c
        terms = (2.0 * nu * phi - tau * tf.square(phi) + c * tf.square(nu)) / F - tf.math.log(F)

        def pull(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            r, S = backward.slope, backward.curvature
            # by the predicted covariance: the log evidence solves the heat equation
            of_Q = 0.5 * (r[..., :, None] * r[..., None, :] - S)
            m, V = (
                tf.concat([tf.zeros_like(one[:1]), one[:-1]], axis=0)
                for one in (forward.mean, forward.covariance)
            )
            of_A = r[..., :, None] * m[..., None, :] + 2.0 * tf.matmul(of_Q, tf.matmul(A, V))
            second = tf.square(backward.mean) + backward.variance
            return tuple(upstream * one for one in (of_A, of_Q, backward.mean, -0.5 * second))

        return 0.5 * tf.reduce_sum(terms), pull

    return value(A, Q, nu, tau)


# ---


# A new state after row i - 1 and before row i: predicted from row i - 1 it is N(a, P), and the rows
# from i on have the slope rho = A^T r_i and the curvature R = A^T S_i A, A the step to row i:
#
#   E x = a + P rho,   cov x = P - P R P
#
# For two new states j before k, cov(x_j, x_k) = P_j Phi^T (1 - R_k P_k), where Phi carries an error
# of the prediction at j to one at k; a row with a site shrinks it by u^T = 1 - P h h^T tau / F.


class Knots(NamedTuple):
    """A smoothed chain as predictions need it, with the prior in front and nothing behind it."""

    mean: tf.Tensor
    """m [N + 1, L, d], of the state given the rows so far; zero in the first row."""
    covariance: tf.Tensor
    """V [N + 1, L, d, d]; the prior's in the first row."""
    slope: tf.Tensor
    """r [N + 1, L, d]; zero in the last row."""
    curvature: tf.Tensor
    """S [N + 1, L, d, d]; zero in the last row."""
    shrinkage: tf.Tensor
    """P h tau / F [N, L, d]."""


class Between(NamedTuple):
    """New states, one for each of B inputs."""

    mean: tf.Tensor
    """a [B, L, d]"""
    covariance: tf.Tensor
    """P [B, L, d, d]"""
    slope: tf.Tensor
    """rho [B, L, d]"""
    curvature: tf.Tensor
    """R [B, L, d, d]"""


def predicted_between(
    knots: Knots, row: tf.Tensor, before: tuple[tf.Tensor, tf.Tensor], after: tf.Tensor
) -> Between:
    """The states at B new inputs.

    :param row: the first row behind each input, 0 to N, [B].
    :param before: A and Q [B, L, d, d] of the step from the row in front.
    :param after: A [B, L, d, d] of the step to the row behind.
    """
    A, Q = before
    mean, V, slope, S = (tf.gather(part, row) for part in knots[:4])
    return Between(
        tf.linalg.matvec(A, mean),
        tf.matmul(tf.matmul(A, V), A, transpose_b=True) + Q,
        tf.linalg.matvec(after, slope, transpose_a=True),
        tf.matmul(tf.matmul(after, S, transpose_a=True), after),
    )


def marginals_between(new: Between, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances of f = h . x [B, L], for h [L, d]."""
    Ph = tf.linalg.matvec(new.covariance, h)
    mean = tf.reduce_sum(h * new.mean, axis=-1) + tf.reduce_sum(Ph * new.slope, axis=-1)
    removed = tf.reduce_sum(Ph * tf.linalg.matvec(new.curvature, Ph), axis=-1)
    return mean, tf.maximum(tf.reduce_sum(h * Ph, axis=-1) - removed, 0.0)


def covariances_between(
    new: Between, row: tf.Tensor, knots: Knots, A: tf.Tensor, joints: Tensors, h: tf.Tensor
) -> tf.Tensor:
    """Covariances of f at B sorted inputs, [L, B, B].

    :param new: their states.
    :param row: the first row behind each input [B].
    :param A: the steps to the N rows [N, L, d, d].
    :param joints: steps A [B, L, d, d] from each input to the next input, or the first row between;
        and from the last row between to the next input. The last entry is unused.

    Cost: N L d^3 + B^2 L d^2.
    """
    direct, last = joints
    Ph = tf.linalg.matvec(new.covariance, h)
    right = h - tf.linalg.matvec(new.curvature, Ph)
    following = tf.concat([row[1:], row[-1:]], axis=0)
    spans = following > row
    within = tf.gather(_products(row, knots, A, h), tf.maximum(following - 1, 0))
    across = tf.matmul(last, tf.matmul(within, direct))
    steps = tf.where(spans[:, None, None, None], across, direct)
    steps = tf.concat([tf.zeros_like(steps[:1]), steps[:-1]], axis=0)  # from the input before
    unit = tf.eye(tf.shape(row)[0], dtype=h.dtype)
    start = tf.zeros_like(tf.transpose(Ph, [1, 0, 2]))
    _, columns = scan(_column, (start,), (steps, unit, Ph, right))
    upper = tf.transpose(columns, [1, 2, 0])  # [L, B, B], of earlier and later inputs
    diagonal = tf.linalg.diag(tf.maximum(tf.linalg.diag_part(upper), 0.0))
    strict = tf.linalg.set_diag(upper, tf.zeros_like(upper[:, 0]))
    return strict + tf.linalg.matrix_transpose(strict) + diagonal


def _products(row: tf.Tensor, knots: Knots, A: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    first = tf.scatter_nd(row[:, None], tf.ones_like(row), [tf.shape(A)[0] + 1])[:-1] > 0
    resets = tf.cast(first, A.dtype)[:, None, None, None]
    eye = tf.eye(tf.shape(A)[-1], dtype=A.dtype)
    shrink = eye - knots.shrinkage[..., :, None] * h[:, None, :]
    rest = tf.matmul(shrink, A * (1.0 - resets))
    (products,) = scan(_product, (tf.zeros_like(A[0]),), (rest, shrink * resets))
    return products


def _product(carry: Tensors, row: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
    step, restart = row
    return (tf.matmul(step, carry[0]) + restart,), ()


def _column(carry: Tensors, row: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
    step, unit, Ph, right = row
    rows = tf.matmul(carry[0], step, transpose_b=True) + unit[:, None] * Ph[:, None, :]
    return (rows,), (tf.linalg.matvec(rows, right),)
