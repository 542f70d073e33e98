"""The root of B in the inverse form."""

# With K_b = L L^T and S~^-1 = I + E, (D8) is B = L^-T E L^-1, which may lose positivity to
# round-off. So E = R R^T by its eigenvalues, and the triangular factor of (L^-T R)^T is C^T.

from __future__ import annotations

__all__ = ["inverse_root"]

import numpy as np
import tensorflow as tf

from ...linalg.triangular import solve


def inverse_root(chol: tf.Tensor, excess: tf.Tensor) -> tf.Tensor:
    """C [L, M, M], lower triangular, with C C^T = L^-T E L^-1; about 10 M^3 per latent.

    :param chol: L [G, M, M]; no gradient, as coinciding eigenvalues have none.
    :param excess: E = S~^-1 - I [L, M, M], or [G, M, M]. Negative eigenvalues count as zero.
    """
    chol, excess = tf.stop_gradient(chol), tf.stop_gradient(excess)
    # else `eigh` would raise, and not be NaN as a Cholesky factor is
    finite = tf.reduce_all(tf.math.is_finite(excess))
    values, vectors = tf.linalg.eigh(tf.where(finite, excess, tf.zeros_like(excess)))
    root = vectors * tf.sqrt(tf.where(finite, tf.maximum(values, 0.0), np.nan))[..., None, :]
    chol = tf.broadcast_to(chol, tf.shape(root))
    upper = tf.linalg.qr(tf.linalg.matrix_transpose(solve(chol, root, adjoint=True))).r
    return tf.linalg.band_part(tf.linalg.matrix_transpose(upper), -1, 0)  # (D8)
