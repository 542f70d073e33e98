"""Preconditioners of neighbours, and when to use them."""

# Near rows leave out what far rows say of the slow parts of f, which points know. So "both" takes
# points first and neighbours for what they leave,
#
#   P = Q_R + (U^T U)^-1,      U of K - Q_R + D as in (N8),
#
# inverted by Woodbury's identity (a full-scale approximation, Sang & Huang 2012; as preconditioner
# with the points' Schur complement, Zhao et al. 2023, arXiv:2304.05460).

from __future__ import annotations

__all__ = [
    "PRECONDITIONERS",
    "Factor",
    "NeighbourFactors",
    "PointsAndNeighbours",
    "best_preconditioner",
]

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...covariances.latents import split_latents
from ...covariances.neighbours import (
    InverseFactor,
    conditional_variances,
    inverse_factor,
    ordered_neighbours,
)
from ...linalg.cholesky import cholesky
from .row_features import RowFeatures, preconditioner_rank, project_rows, with_rows

PRECONDITIONERS = ("auto", "points", "neighbours", "both")
_NEIGHBOURS = 60
"""Of the preconditioner. Half as many take up to twice the products where these are many."""
_FEW, _MANY = 30, 120
"""Neighbours whose variances, compared, show what more of them would add."""
_LEAST_ROWS = 1_000
"""Fewer rows are solved for in no time by points, a quarter of them."""
_SAMPLE = 256
"""Rows on which both preconditioners are judged."""


class Factor(Protocol):
    """An approximate inverse of K + D of one latent, or of all."""

    def solve(self, columns: tf.Tensor) -> tf.Tensor:
        """P^-1 v [N, S] for v [N, S]."""


class PointsAndNeighbours(NamedTuple):
    """P = A^T A + (U^T U)^-1."""

    near: InverseFactor
    """U, of K - A^T A + D."""
    seen: tf.Tensor
    """U A^T [N, R]."""
    root: tf.Tensor
    """Cholesky factor of I + A U^T U A^T [R, R]."""

    def solve(self, columns: tf.Tensor) -> tf.Tensor:
        """P^-1 v [N, S] for v [N, S]; N (m + R) S."""
        half = self.near.times(columns)
        known = tf.matmul(self.seen, half, transpose_a=True)
        return self.near.transposed(
            half - tf.matmul(self.seen, tf.linalg.cholesky_solve(self.root, known))
        )


class NeighbourFactors:
    """Inverse factors of K + D at one kernel, for any D.

    :param X: inputs [N, D].
    :param features: A at points that come first, for "both"; None for neighbours alone, (N8).

    Cost: the search, N^2 D, or N m log N in up to eight columns.
    """

    def __init__(
        self, kernel: Kernel, X: tf.Tensor, features: RowFeatures | None = None, seed: int = 0
    ) -> None:
        self._kernels, self._X = [one for (one,) in split_latents(kernel)], X
        order = np.random.default_rng(seed).permutation(int(X.shape[0]))
        self._near = [ordered_neighbours(one, X, order, _NEIGHBOURS) for one in self._kernels]
        self._features = features

    def factors(self, weights: tf.Tensor) -> tuple[Factor, ...]:
        """One factor of all latents, or one each, for weights w [N, L].

        :return: empty where a covariance of neighbours is singular to round-off; use points then.

        Cost: N m^3 / 3 each; with points N R (m^2 + R) more, and N R numbers of memory.
        """
        shared = bool(tf.reduce_all(weights == weights[:, :1]))
        count = 1 if len(self._kernels) == 1 and shared else int(weights.shape[1])
        found: list[Factor] = []
        for one in range(count):
            noise = 1.0 / weights[:, one]
            made: Factor | None = None if self._features is None else self._with_points(one, noise)
            # what points leave can be singular to round-off where K + D is not
            made = self._alone(one, noise) if made is None else made
            if made is None:
                return ()
            found.append(made)
        return tuple(found)

    def _alone(self, one: int, noise: tf.Tensor) -> InverseFactor | None:
        which = one % len(self._kernels)
        U = inverse_factor(self._kernels[which], self._X, noise, self._near[which])
        return U if np.isfinite(U.log_determinant) else None

    def _with_points(self, one: int, noise: tf.Tensor) -> PointsAndNeighbours | None:
        assert self._features is not None
        which = one % len(self._kernels)
        blocks = [block[one % len(block)] for block in self._features.blocks]
        known = tf.transpose(tf.concat(blocks, axis=1))  # A^T
        U = inverse_factor(self._kernels[which], self._X, noise, self._near[which], known)
        if not np.isfinite(U.log_determinant):
            return None
        seen = U.times(known)
        product = tf.matmul(seen, seen, transpose_a=True)
        root, ok = cholesky(tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0))
        return PointsAndNeighbours(U, seen, root) if bool(ok) else None


def best_preconditioner(
    kernel: Kernel, beta: InducingVariables, X: tf.Tensor, noise: tf.Tensor
) -> str:
    """Name the better of points and neighbours, which promises fewer products on some rows.

    :param kernel: of all latents; X is [N, D].
    :param beta: the inducing points.
    :param noise: the noise variance [].
    :return: "points" or, with little noise, "neighbours". Never "both".
    """
    N = int(X.shape[0])
    if N < _LEAST_ROWS:
        return "points"
    rows = np.linspace(0, N - 1, min(N, _SAMPLE)).astype(int)
    points = with_rows(beta, X.numpy(), preconditioner_rank(None, N))
    if _of_neighbours(kernel, X, noise, rows) < _of_points(kernel, points, X, noise, rows):
        return "neighbours"
    return "points"


def _of_points(
    kernel: Kernel, points: InducingVariables, X: tf.Tensor, noise: tf.Tensor, rows: np.ndarray
) -> float:
    # Eigenvalues go up to the prior variance that points leave, in noise variances.
    features = project_rows(kernel, points, tf.gather(X, rows), 0)
    known = tf.concat([tf.reduce_sum(tf.square(A), axis=1) for A in features.blocks], axis=1)
    left = float(tf.reduce_mean(features.prior - known)) / float(noise)
    return 8.0 * max(left, 0.0) ** 0.45


def _of_neighbours(kernel: Kernel, X: tf.Tensor, noise: tf.Tensor, rows: np.ndarray) -> float:
    # The eigenvalues, one on average, spread by the variance that more neighbours would explain.
    order = np.random.default_rng(0).permutation(int(X.shape[0]))
    variances = tf.fill([X.shape[0]], noise)
    gaps = []
    for (one,) in split_latents(kernel):
        tau = [
            conditional_variances(
                one, X, variances, tf.constant(rows, tf.int32),
                tf.constant(ordered_neighbours(one, X, order, count, rows)),
            )
            for count in (_FEW, _MANY)
        ]  # fmt: skip
        gaps.append(float(tf.reduce_mean(tf.math.log(tau[0] / tau[1]))))
    return 5.0 + 60.0 * max(gaps)  # within a third of the counts measured on three sets
