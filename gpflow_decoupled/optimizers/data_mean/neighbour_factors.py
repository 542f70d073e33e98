"""The preconditioner of neighbours for a mean on all data, and when it is the better one."""

from __future__ import annotations

__all__ = ["PRECONDITIONERS", "NeighbourFactors", "neighbours_pay"]

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
from .row_features import preconditioner_rank, project_rows, with_rows

PRECONDITIONERS = ("auto", "points", "neighbours")
_NEIGHBOURS = 60
"""Of the preconditioner. Half as many take up to twice the products where these are many."""
_FEW, _MANY = 30, 120
"""Neighbours whose variances, compared, show what more of them would add."""
_LEAST_ROWS = 1_000
"""Fewer rows are solved for in no time by points, a quarter of them."""
_SAMPLE = 256
"""Rows on which both preconditioners are judged."""


class NeighbourFactors:
    """Sparse inverse factors (N8) of K + D at one kernel, for any D.

    :param X: inputs [N, D].

    Cost: the search, N^2 D, or N m log N in up to eight columns.
    """

    def __init__(self, kernel: Kernel, X: tf.Tensor, seed: int = 0) -> None:
        self._kernels, self._X = [one for (one,) in split_latents(kernel)], X
        order = np.random.default_rng(seed).permutation(int(X.shape[0]))
        self._near = [ordered_neighbours(one, X, order, _NEIGHBOURS) for one in self._kernels]

    def factors(self, weights: tf.Tensor) -> tuple[InverseFactor, ...]:
        """One factor of all latents, or one each, for weights w [N, L]; N m^3 / 3 each.

        :return: empty where a covariance of neighbours is singular to round-off; use points then.
        """
        shared = bool(tf.reduce_all(weights == weights[:, :1]))
        count = 1 if len(self._kernels) == 1 and shared else int(weights.shape[1])
        found = []
        for one in range(count):
            which = one % len(self._kernels)
            noise = 1.0 / weights[:, one]
            found.append(inverse_factor(self._kernels[which], self._X, noise, self._near[which]))
        return tuple(found) if all(np.isfinite(U.log_determinant) for U in found) else ()


def neighbours_pay(
    kernel: Kernel, beta: InducingVariables, X: tf.Tensor, noise: tf.Tensor, rank: int | None
) -> bool:
    """Decide on some rows if neighbours promise fewer products than points.

    :param kernel: of all latents; X is [N, D].
    :param beta: the inducing points.
    :param noise: the noise variance [].
    :param rank: R, as in `preconditioner_rank`.
    """
    N = int(X.shape[0])
    if N < _LEAST_ROWS:
        return False
    rows = np.linspace(0, N - 1, min(N, _SAMPLE)).astype(int)
    points = with_rows(beta, X.numpy(), preconditioner_rank(rank, N))
    return _of_neighbours(kernel, X, noise, rows) < _of_points(kernel, points, X, noise, rows)


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
