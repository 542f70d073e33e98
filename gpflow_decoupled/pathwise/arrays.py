"""Products and solves for S draws of L latent functions at once, arrays [S, L, M].

The matrices have one entry per latent in their first axis, [L, M, N], or a single one that all
latents share, [1, M, N]. Both cases are written [G, M, N].
"""

from __future__ import annotations

__all__ = ["normal", "project", "solve_draws"]

import numpy as np
import tensorflow as tf

from ..linalg.triangular import solve


def normal(like: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    """Standard normal random numbers in the shape and dtype of `like`."""
    return tf.constant(rng.standard_normal(tuple(like.shape)), like.dtype)


def solve_draws(chol: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The products of L^-1 with draws [S, L, M], for a lower triangular L [G, M, M]."""
    columns = tf.transpose(values, [1, 2, 0])
    return tf.transpose(
        solve(tf.broadcast_to(chol, [columns.shape[0], *chol.shape[1:]]), columns), [2, 0, 1]
    )


def project(features: tf.Tensor, coordinates: tf.Tensor, own: bool = False) -> tf.Tensor:
    """The products of transposed features with the coordinates of each draw.

    :param features: [G, M, N], or [G, M, S N] if `own`.
    :param coordinates: [S, L, M].
    :param own: each draw has N columns of its own, and is multiplied with these only.
    :return: [S, L, N].
    """
    if not own:
        return tf.transpose(
            tf.matmul(features, tf.transpose(coordinates, [1, 2, 0]), transpose_a=True), [2, 0, 1]
        )
    blocks = tf.reshape(features, [*features.shape[:2], coordinates.shape[0], -1])
    return tf.einsum(
        "gmsn,slm->sln" if features.shape[0] == 1 else "lmsn,slm->sln", blocks, coordinates
    )
