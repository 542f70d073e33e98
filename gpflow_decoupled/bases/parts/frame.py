"""Joint whitened coordinates of all points."""

# With points z = (beta, gamma), or beta alone, jitter n, and u = f(z),
#
#   L_z = [[L_b, 0], [U^T, L_c]],   U = L_b^-1 K_bg,   L_c L_c^T = C_g + n_g,   u = L_z u~
#
# and u~ ~ N(0, I). A mean sum_i k(x, z_i) c_i has E_q u~ = L_z^T c, as if the jitter were part of
# u, so E_q f(x) = Phi_x^T E_q u~ with Phi_x = L_z^-1 k_zx exactly.

from __future__ import annotations

__all__ = ["Frame", "features_in", "frame_of"]

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...covariances.latents import cross_gram, gram, gram_to_data, gram_to_factor
from ...linalg.cholesky import add_jitter, cholesky
from ...linalg.triangular import solve


class Frame(NamedTuple):
    """The factor of the prior covariance at all points of a basis, at one kernel."""

    points: tuple[InducingVariables, ...]
    """beta, or beta and gamma."""
    sizes: tuple[int, ...]
    """Numbers of points; M is their sum."""
    free: int
    """How many of them, from the first, have a covariance in q; the others keep the prior's."""
    chol: tf.Tensor
    """L_z [G, M, M]."""
    noise: tf.Tensor
    """Jitter n of each point [G, M]."""
    norm: tf.Tensor | None
    """Pi [G, M, M] in the divergence's 1/2 mu^T Pi mu for E_q u~ = mu; None is the identity."""
    ok: tf.Tensor
    """[], bool: the factorisations succeeded."""


def frame_of(kernel: Kernel, points: Sequence[InducingVariables], free: int) -> Frame:
    """Factorise the prior covariance at all points; M^3 / 3, differentiable in the kernel.

    :param free: how many of these have a covariance in q.
    """
    beta, *rest = points
    K_b, with_jitter = gram(kernel, beta), gram_to_factor(kernel, beta)
    chol, ok = cholesky(with_jitter)
    noise = tf.linalg.diag_part(with_jitter) - tf.linalg.diag_part(K_b)
    sizes = (int(chol.shape[-1]),)
    if not rest:
        return Frame((beta,), sizes, free, chol, noise, None, ok)
    U = solve(chol, cross_gram(kernel, beta, rest[0]))
    K_g = gram(kernel, rest[0])
    C_g = K_g - tf.matmul(U, U, transpose_a=True)
    jittered = add_jitter(C_g, minuend=K_g)
    chol_g, ok_g = cholesky(jittered)
    noise = tf.concat([noise, tf.linalg.diag_part(jittered) - tf.linalg.diag_part(C_g)], axis=-1)
    above = tf.concat([chol, tf.zeros_like(U)], axis=-1)
    joint = tf.concat([above, tf.concat([tf.linalg.matrix_transpose(U), chol_g], axis=-1)], axis=-2)
    norm = _norm(chol, chol_g, C_g) if free == 1 else None
    return Frame(
        (beta, rest[0]), (*sizes, int(chol_g.shape[-1])), free, joint, noise, norm, ok & ok_g
    )


def features_in(frame: Frame, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Phi = L_z^-1 k(z, X) [G, M, N] for X [N, D]; N M^2."""
    return solve(frame.chol, tf.concat([gram_to_data(kernel, z, X) for z in frame.points], axis=-2))


def _norm(chol: tf.Tensor, chol_g: tf.Tensor, C_g: tf.Tensor) -> tf.Tensor:
    """diag(I, L_c^-1 C_g L_c^-T) [G, M, M]: the norm (D21) has C_g without jitter."""
    half = solve(chol_g, C_g)
    inner = solve(chol_g, tf.linalg.matrix_transpose(half))
    eye = tf.eye(int(chol.shape[-1]), batch_shape=tf.shape(chol)[:-2], dtype=chol.dtype)
    parts = [tf.linalg.LinearOperatorFullMatrix(part) for part in (eye, inner)]
    return tf.linalg.LinearOperatorBlockDiag(parts).to_dense()
