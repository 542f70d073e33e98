"""Products and solves for S draws of L latents, arrays [S, L, M]."""

# Matrices are [G, M, N] with G = L, or G = 1 if all latents share one.

from __future__ import annotations

__all__ = ["normal", "project", "solve_draws"]

import numpy as np
import tensorflow as tf

from ..linalg.triangular import solve


def normal(like: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    """Standard normal numbers in the shape and dtype of `like`."""
    return tf.constant(rng.standard_normal(tuple(like.shape)), like.dtype)


def solve_draws(chol: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """L^-1 times draws [S, L, M], for a lower triangular L [G, M, M]."""
    columns = tf.transpose(values, [1, 2, 0])
    return tf.transpose(
        solve(tf.broadcast_to(chol, [columns.shape[0], *chol.shape[1:]]), columns), [2, 0, 1]
    )


def project(features: tf.Tensor, coordinates: tf.Tensor, own: bool = False) -> tf.Tensor:
    """Multiply transposed features by the coordinates of each draw.

    Features are [G, M, N], or [G, M, S N] if `own`, coordinates [S, L, M], the result [S, L, N].
    """
    if not own:
        return tf.transpose(
            tf.matmul(features, tf.transpose(coordinates, [1, 2, 0]), transpose_a=True), [2, 0, 1]
        )
    blocks = tf.reshape(features, [*features.shape[:2], coordinates.shape[0], -1])
    return tf.einsum(
        "gmsn,slm->sln" if features.shape[0] == 1 else "lmsn,slm->sln", blocks, coordinates
    )
