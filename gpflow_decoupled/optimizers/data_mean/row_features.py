"""Whitened features at nested points: beta, then the preconditioner's."""

# A = L^-1 k(points, X) [G, R, N], in blocks of rows; its first M rows are beta's features.

from __future__ import annotations

__all__ = [
    "ROWS",
    "RowFeatures",
    "nested_points",
    "preconditioner_rank",
    "preconditioner_rows",
    "project_rows",
    "with_rows",
]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel

from ...covariances.latents import gram_to_data, gram_to_factor, prior_variance
from ...errors import NumericalError
from ...inducing.variables import point_values
from ...linalg.cholesky import cholesky
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import solve, symmetric_product

ROWS = 8192
"""Rows of X in a block."""


class RowFeatures(NamedTuple):
    """A [G, R, N] in blocks."""

    blocks: tuple[tf.Tensor, ...]
    """Each [G, R, n], N columns together."""
    size: int
    """M, the leading rows, of beta."""
    prior: tf.Tensor
    """Prior variances [G, N] of the rows."""

    def times(self, columns: tf.Tensor, rows: int | None = None) -> tf.Tensor:
        """A v [R, L] for v [N, L], or its first `rows` rows; N R L.

        `v` may have several neighbouring columns per latent.
        """
        parts = tf.split(columns, [block.shape[-1] for block in self.blocks])
        return tf.add_n(
            [_applied(block[:, :rows], part) for block, part in zip(self.blocks, parts)]
        )

    def transposed(self, columns: tf.Tensor) -> tf.Tensor:
        """A^T u [N, L] for u [R, L], or [M, L] of leading rows; N R L. Columns as in `times`."""
        rows = columns.shape[0]
        return tf.concat(
            [_applied(block[:, :rows], columns, adjoint=True) for block in self.blocks], axis=0
        )

    def precision(self, weights: tf.Tensor, rows: int | None = None) -> tf.Tensor:
        """I + A diag(w) A^T [L, R, R] for w [N, L], or for the first `rows` rows of A; N R^2 L."""
        parts = tf.split(tf.transpose(weights), [block.shape[-1] for block in self.blocks], axis=1)
        product = tf.add_n(
            [symmetric_product(block[:, :rows], part) for block, part in zip(self.blocks, parts)]
        )
        return tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)

    def variances(self, root: tf.Tensor) -> tf.Tensor:
        """Variances (D20) of q(f) [N, L] for a root [L, M, M] of S~; N M^2 L."""
        parts = tf.split(self.prior, [block.shape[-1] for block in self.blocks], axis=1)
        return tf.concat(
            [
                _variances(block[:, : self.size], part, root)
                for block, part in zip(self.blocks, parts)
            ],
            0,
        )


def project_rows(kernel: Kernel, points: InducingVariables, X: tf.Tensor, size: int) -> RowFeatures:
    """A at inputs X [N, D]; R^3 / 3 + N R^2."""
    chol, ok = cholesky(gram_to_factor(kernel, points))
    if not bool(ok):
        raise NumericalError(
            "The covariance at the inducing points could not be factorised: increase"
            " gpflow.config.default_jitter(), or remove points that are close to others.",
            "K_beta",
        )
    starts = range(0, X.shape[0], ROWS)
    blocks = tuple(
        solve(chol, gram_to_data(kernel, points, X[start : start + ROWS])) for start in starts
    )
    return RowFeatures(blocks, size, prior_variance(kernel, X, full_cov=False))


def preconditioner_rows(
    kernel: Kernel, beta: InducingVariables, X: tf.Tensor, rank: int | None
) -> RowFeatures:
    """A at inputs X [N, D] of beta and rows of X, `preconditioner_rank` points in all."""
    size = int(point_values(beta)[0].shape[0])
    return project_rows(
        kernel, with_rows(beta, X.numpy(), preconditioner_rank(rank, len(X))), X, size
    )


def preconditioner_rank(rank: int | None, rows: int) -> int:
    """R, the points of the preconditioner; None is min(1000, N / 4)."""
    return min(1000, rows // 4) if rank is None else rank


def _applied(block: tf.Tensor, columns: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    if columns.shape[1] == block.shape[0] or block.shape[0] == 1:
        return apply_per_latent(block, columns, adjoint=adjoint)
    of_latents = tf.stack(tf.split(columns, block.shape[0], axis=1))
    return tf.concat(tf.unstack(tf.matmul(block, of_latents, transpose_a=adjoint)), axis=1)


def _variances(A: tf.Tensor, prior: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    plus = tf.reduce_sum(tf.square(tf.matmul(root, A, transpose_a=True)), axis=-2)
    return tf.transpose(prior - tf.reduce_sum(tf.square(A), axis=-2) + plus)


def nested_points(beta: np.ndarray, X: np.ndarray, rank: int, seed: int = 0) -> np.ndarray:
    """Return beta [M, D] and random other rows of X [N, D], `rank` in all: [R, D]."""
    extra = max(0, min(rank, len(X)) - len(beta))
    rows = np.random.default_rng(seed).permutation(len(X))[: extra + len(beta)]
    candidates = np.unique(X[np.sort(rows)], axis=0)
    known = {row.tobytes() for row in np.ascontiguousarray(beta)}
    new = [row for row in candidates if row.tobytes() not in known][:extra]
    return np.concatenate([beta, np.array(new).reshape(-1, beta.shape[1])])


def with_rows(beta: InducingVariables, X: np.ndarray, rank: int) -> InducingVariables:
    """Each latent's points beta, then random rows of X [N, D], `rank` in all."""
    sets = [nested_points(np.asarray(values), X, rank) for values in point_values(beta)]
    # rows of X that repeat, or are points of beta, may leave one with fewer
    count = min(len(one) for one in sets)
    parts = [InducingPoints(one[:count]) for one in sets]
    if isinstance(beta, InducingPoints):
        return parts[0]
    if len(parts) == 1:
        return SharedIndependentInducingVariables(parts[0])
    return SeparateIndependentInducingVariables(parts)
