"""Newton systems of Gaussian sites, (I + H G)(x; y) = (r; s), from the covariance V alone."""

from __future__ import annotations

__all__ = [
    "RIDGE", "class_mode_step", "class_solve", "coupled_solve", "coupled_solve_of_roots",
    "inner_per_latent", "ridged", "squared_gram_product", "stationary_solve",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .cholesky import cholesky
from .conjugate_gradients import Blocks, conjugate_gradients, woodbury_factor, woodbury_solve
from .triangular import lower_root_gram, solve

# ---
# Newton systems of two diagonal blocks, by elimination.


#   [ P + diag a   diag c     ] [x]   [r]
#   [ diag c       Q + diag b ] [y] = [s]
#
# for symmetric non-negative P, Q. Eliminating y leaves
#
#   [ P + diag a - diag c (Q + diag b)^-1 diag c ] x = r - diag c (Q + diag b)^-1 s
#
# for conjugate gradients preconditioned by P + diag a; the coupling is small, so few iterations
# suffice.


RIDGE = 4500.0
"""Added to the unit diagonals of the scaled blocks, in machine epsilons (1e-12 in float64)."""
_ITERATIONS = 50


def coupled_solve(
    P: tf.Tensor,
    a: tf.Tensor,
    Q: tf.Tensor,
    b: tf.Tensor,
    c: tf.Tensor,
    r: tf.Tensor,
    s: tf.Tensor,
    free: tuple[tf.Tensor, tf.Tensor],
    ridge: tf.Tensor | float = RIDGE,
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above; 2/3 N^3 per latent, and N^2 per iteration.

    P is [G, N, N], G of 1 or L, Q [L, N, N], and the vectors are [L, N].

    :param free: masks [L, N] of the free rows of x and y; the others are zero.
    :param ridge: added to the unit diagonals of the scaled blocks, in machine epsilons [].
    :return: x, y [L, N], and whether both scaled blocks were positive definite [].
    """
    # 1) Scale both blocks to a unit diagonal and factorise them.
    scale_x, chol_x, ok_x = _block(P, a, free[0], ridge)
    scale_y, chol_y, ok_y = _block(Q, b, free[1], ridge)
    cross = c * scale_x * scale_y

    # 2) Eliminate y, and solve for x.
    def eliminated(x: Blocks) -> Blocks:
        product = tf.linalg.matvec(chol_x, tf.linalg.matvec(chol_x, x[0], transpose_a=True))
        return (product - cross * _solve(chol_y, cross * x[0]),)

    def precondition(residual: Blocks) -> Blocks:
        return (_solve(chol_x, residual[0]),)

    right = _solve(chol_y, s * scale_y)
    start = (r * scale_x - cross * right,)
    (x,) = conjugate_gradients(
        eliminated, precondition, start, inner_per_latent, tolerance, _ITERATIONS
    ).x
    # 3) Put x into the second row.
    y = right - _solve(chol_y, cross * x)
    return x * scale_x, y * scale_y, ok_x & ok_y


def inner_per_latent(left: Blocks, right: Blocks) -> tf.Tensor:
    """Sum the products of blocks [L, N] per latent: [L, 1]."""
    return tf.reduce_sum(sum(x * y for x, y in zip(left, right)), axis=-1, keepdims=True)


def ridged(diagonal: tf.Tensor, ridge: tf.Tensor | float) -> tf.Tensor:
    """Add the ridge [], in machine epsilons, to the diagonal [L, N] of a scaled block."""
    return diagonal + ridge * tf.constant(
        np.finfo(diagonal.dtype.as_numpy_dtype).eps, diagonal.dtype
    )


def _block(
    matrix: tf.Tensor, diagonal: tf.Tensor, free: tf.Tensor, ridge: tf.Tensor | float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    scale = tf.where(
        free, tf.math.rsqrt(tf.linalg.diag_part(matrix) + diagonal), tf.zeros_like(diagonal)
    )
    scaled = scale[:, :, None] * matrix * scale[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(scaled, ridged(tf.ones_like(scale), ridge)))
    return scale, chol, ok


def _solve(chol: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    return solve(chol, solve(chol, vectors[..., None]), adjoint=True)[..., 0]


# ---
# The Newton systems of `coupled` with the dense blocks given by thin roots; nothing is N x N.


#   [ A A^T + diag a   diag c             ] [x]   [r]
#   [ diag c           1/2 V * V + diag b ] [y] = [s],   V = T^T T,   A [N, p], T [p, N]
#
# (V * V) y is the diagonal of T^T (T diag(y) T^T) T and costs N p^2. The preconditioner keeps only
# the diagonal of V * V and needs one p x p system.


def squared_gram_product(T: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """(V * V) y [L, N] with V = T^T T, for T [L, p, N] and y [L, N]; 2 N p^2."""
    middle = tf.matmul(T * y[:, None, :], T, transpose_b=True)
    return tf.reduce_sum(T * tf.matmul(middle, T), axis=-2)


def coupled_solve_of_roots(
    A: tf.Tensor,
    a: tf.Tensor,
    T: tf.Tensor,
    b: tf.Tensor,
    c: tf.Tensor,
    r: tf.Tensor,
    s: tf.Tensor,
    free: tuple[tf.Tensor, tf.Tensor],
    ridge: tf.Tensor | float = RIDGE,
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above; 3 N p^2 per latent and iteration.

    A is [G, N, p], G of 1 or L, T [L, p, N], and the vectors are [L, N]. Other arguments as
    `coupled_solve`; `ok` concerns the scaled preconditioner.
    """
    # 1) Scale both blocks to a unit diagonal.
    half_squares = 0.5 * tf.square(tf.reduce_sum(tf.square(T), axis=-2))
    scale_x = _scale(tf.reduce_sum(tf.square(A), axis=-1) + a, free[0])
    scale_y = _scale(half_squares + b, free[1])
    A, a, b = (
        scale_x[..., None] * A,
        _diagonal(a, scale_x, free[0], ridge),
        _diagonal(b, scale_y, free[1], ridge),
    )
    cross = c * scale_x * scale_y

    def apply(pair: Blocks) -> Blocks:
        x, y = pair
        top = tf.linalg.matvec(A, tf.linalg.matvec(A, x, transpose_a=True)) + a * x + cross * y
        return top, 0.5 * scale_y * squared_gram_product(T, scale_y * y) + b * y + cross * x

    # 2) Precondition with a unit diagonal as the second block: y = s - cross x, and a
    # low-rank system in x.
    schur = woodbury_factor(A, a - tf.square(cross))

    def precondition(pair: Blocks) -> Blocks:
        x, y = pair
        x = woodbury_solve(schur, x - cross * y)
        return x, y - cross * x

    # 3) Solve.
    right = (r * scale_x, s * scale_y)
    x, y = conjugate_gradients(
        apply, precondition, right, inner_per_latent, tolerance, _ITERATIONS
    ).x
    return x * scale_x, y * scale_y, schur.ok


def _scale(diagonal: tf.Tensor, free: tf.Tensor) -> tf.Tensor:
    return tf.where(free, tf.math.rsqrt(diagonal), tf.zeros_like(diagonal))


def _diagonal(
    values: tf.Tensor, scale: tf.Tensor, free: tf.Tensor, ridge: tf.Tensor | float
) -> tf.Tensor:
    """Scale a diagonal; rows that are not free get a one, and stay at zero."""
    return tf.where(free, ridged(values * tf.square(scale), ridge), tf.ones_like(scale))


# ---


#   G = blockdiag(K, 1/2 V * V),   V = (K^-1 + Lambda)^-1,   H: a block (a, c; c, b) per observation
#
# I + H G is self-adjoint in <u, w> = u^T G w, the inner product of the conjugate gradients here.
# The first block is preconditioned by (I + Lambda K)^-1 = I - Lambda V. K is not needed, as K (I +
# Lambda K)^-1 = V.


_NEWTON_SYSTEMS_ITERATIONS = 60


def stationary_solve(
    V: tf.Tensor,
    lam: tf.Tensor,
    H: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    r: tf.Tensor,
    s: tf.Tensor,
    tolerance: float = 1e-3,
    root: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above, [L, N] each; 2 N^2 per latent and iteration.

    :param V: [L, N, N]; with `root`, T [L, p, N] with V = T^T T, at 4 N p + 2 N p^2.
    :param lam: lambda [L, N], the diagonal of Lambda; r and s are [L, N].
    :param H: (a, b, c), [L, N] each.
    :return: x, y, and whether G + G H G was positive definite and the tolerance reached [].
    """
    a, b, c = H
    squared = None if root else tf.square(V)

    def precondition(residual: Blocks) -> Blocks:
        """Return the preconditioned residual z, and G z: [L, N] each."""
        x, y = residual
        if squared is not None:
            G_z = tf.linalg.matvec(V, x), 0.5 * tf.linalg.matvec(squared, y)
        else:
            G_z = (
                tf.linalg.matvec(V, tf.linalg.matvec(V, x), transpose_a=True),
                0.5 * squared_gram_product(V, y),
            )
        return x - lam * G_z[0], y, *G_z

    def apply(direction: Blocks) -> Blocks:
        x, y, G_x, G_y = direction
        return x + a * G_x + c * G_y, y + c * G_x + b * G_y

    def inner(residual: Blocks, direction: Blocks) -> tf.Tensor:
        return inner_per_latent(residual, direction[2:])

    found = conjugate_gradients(
        apply, precondition, (r, s), inner, tolerance, _NEWTON_SYSTEMS_ITERATIONS
    )
    return found.x[0], found.x[1], found.ok


# ---
# Newton systems of sites that couple C latents, (I + H G)(x; y) = (r; q).


#   G = blockdiag(K_c, 1/2 V_c * V_c) per latent,
#   H = Q^T (E - E 1 1^T E / 1^T E 1) Q,   Q = (I, D) per observation,   E, D diagonal      (V35)
#
# The inner matrix is the limit of (E^-1 + k 1 1^T)^-1 for large k, and Q G Q^T is block diagonal:
# T_c = K_c + D_c (1/2 V_c * V_c) D_c. So the steps differ from (r; q) by Q^T z with
#
#   z = -F (g - y),   F_c = (T_c + E_c^-1)^-1,   (sum_c F_c) y = sum_c F_c g_c,   g = Q G (r; q)
#
# as in the multi-class Laplace approximation (Rasmussen & Williams 2006, section 3.5).


def class_solve(
    K: tf.Tensor, V: tf.Tensor, E: tf.Tensor, D: tf.Tensor, r: tf.Tensor, q: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above, [C, N] each; 5/3 N^3 per latent, and N^3 / 3.

    :param K: prior covariances [C, N, N], or one for all [1, N, N].
    :param V: posterior covariances [C, N, N].
    :param E: non-negative [C, N], above 0 in some class of each observation; D is [C, N].
    :param r: right sides [C, N] of the means; q of the variances.
    :return: x, y, and whether all factorisations succeeded [].
    """
    U = 0.5 * tf.square(V)
    factors = _factors(K + D[:, :, None] * U * D[:, None, :], E)
    g = tf.linalg.matvec(K, r) + D * tf.linalg.matvec(U, q)
    z = _correction(factors, g)
    return r + z, q + D * z, factors.ok


def class_mode_step(
    K: tf.Tensor, p: tf.Tensor, r: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return x [C, N] of (I + W K) x = r, log|I + K W| and whether there is one; cost as above.

    :param K: prior covariances [C, N, N], or one for all [1, N, N].
    :param p: probabilities [C, N]; r is [C, N].
    """
    # W is the curvature diag(p) - p p^T of each observation's softmax, (C73).
    factors = _factors(K, p)
    return r + _correction(factors, tf.linalg.matvec(K, r)), factors.log_det, factors.ok


class _Factors(NamedTuple):
    F: tf.Tensor
    """[C, N, N]"""
    total: tf.Tensor
    """Cholesky factor of sum_c F_c [N, N]."""
    log_det: tf.Tensor
    """sum_c log|I + E_c^1/2 T_c E_c^1/2| + log|sum_c F_c|, a scalar."""
    ok: tf.Tensor
    """[]"""


def _factors(T: tf.Tensor, E: tf.Tensor) -> _Factors:
    root = tf.sqrt(E)
    B = root[:, :, None] * T * root[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))
    eye = tf.eye(tf.shape(B)[-1], batch_shape=[tf.shape(B)[0]], dtype=B.dtype)
    F = root[:, :, None] * lower_root_gram(solve(chol, eye)) * root[:, None, :]
    total, sum_ok = cholesky(tf.reduce_sum(F, axis=0))
    logs = tf.math.log(tf.linalg.diag_part(chol)), tf.math.log(tf.linalg.diag_part(total))
    log_det = 2.0 * sum(tf.reduce_sum(part) for part in logs)
    return _Factors(F, total, log_det, tf.reduce_all(ok) & sum_ok)


def _correction(factors: _Factors, g: tf.Tensor) -> tf.Tensor:
    right = tf.reduce_sum(tf.linalg.matvec(factors.F, g), axis=0)
    shared = tf.linalg.cholesky_solve(factors.total, right[:, None])[:, 0]
    return -tf.linalg.matvec(factors.F, g - shared)  # (V35)
