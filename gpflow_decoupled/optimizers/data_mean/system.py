"""The linear system, its preconditioner and certificates."""

from __future__ import annotations

__all__ = [
    "Factor", "MeanSolution", "MeanSystem", "MixedSystem", "NeighbourFactors",
    "PRECONDITIONERS", "Point", "PointsAndNeighbours", "ROWS", "Report", "RowFeatures", "Solve",
    "TIME_IS_UP", "best_of", "best_preconditioner", "check_gap", "nested_points", "point_of",
    "preconditioner_rank", "preconditioner_rows", "project_rows", "with_rows",
]  # fmt: skip

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel

from ...bases.optimum import DataMean, data_points
from ...covariances.latents import gram_to_data, gram_to_factor, prior_variance, split_latents
from ...covariances.neighbourhoods import (
    InverseFactor,
    conditional_variances,
    inverse_factor,
    ordered_neighbours,
)
from ...covariances.products import follows_dtype, gram_product
from ...errors import NumericalError
from ...inducing.variables import point_values
from ...lbfgs import TIME_IS_UP
from ...likelihoods.parameters import single_noise_variance
from ...linalg.cholesky import cholesky
from ...linalg.triangular import solve, symmetric_product
from ...linalg.whitening import apply_per_latent
from ...models import BasisGP
from ...replicas import Group

# ---
# Whitened features at nested points: beta, then the preconditioner's.


# A = L^-1 k(points, X) [G, R, N], in blocks of rows; its first M rows are beta's features.


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


# ---
# Preconditioners of neighbours, and when to use them.


# Near rows leave out what far rows say of the slow parts of f, which points know. So "both" takes
# points first and neighbours for what they leave,
#
#   P = Q_R + (U^T U)^-1,      U of K - Q_R + D as in (N8),
#
# inverted by Woodbury's identity (a full-scale approximation, Sang & Huang 2012; as preconditioner
# with the points' Schur complement, Zhao et al. 2023, arXiv:2304.05460).


PRECONDITIONERS = ("auto", "points", "neighbours", "both")
_NEIGHBOURS = 60
"""Of the preconditioner. Half as many take up to twice the products where these are many."""
_FEW, _MANY = 30, 120
"""Neighbours whose variances, compared, show what more of them would add."""
_LEAST_ROWS = 1_000
"""Fewer rows are solved for in no time by points, a quarter of them."""
_SAMPLE = 256
"""Rows on which both preconditioners are judged."""


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


Factor: TypeAlias = InverseFactor | PointsAndNeighbours
"""An approximate inverse of K + D of one latent, or of all: `solve` of columns [N, S]."""


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


# ---


# The bound's maximum over the mean solves (K + D) a = y~ (D34). At any a, with residual r and Q =
# A^T A = K_xb K_b^-1 K_bx,
#
#   -2 (bound - constant) = r^T (Q + D)^-1 r + 2 a^T y~ - a^T (K + D) a   (D32)
#
# The gap, half of the first term, bounds the distance from the maximum: as Q <= K, the last two
# terms never exceed y~^T (K + D)^-1 y~.


Progress = Callable[[float], None]

_POWER_STEPS = 30
_ROUNDED_ROWS, _ROUNDING_STEPS = 2048, 3
"""Rows for measuring the errors of a product: above the thousand always in full precision."""


@dataclass
class MeanSystem:
    """(K + D) a = y~ for each latent.

    :param projections: A at beta and at the points of the preconditioner.
    :param weights: w [N, L], above zero; then w of each column of the target [N, L S].
    :param target: y~ [N, L S].
    :param draws: S, right-hand sides per latent in neighbouring columns, with one factorisation.
    """

    kernel: Kernel
    mean: DataMean
    projections: RowFeatures
    weights: tf.Tensor
    target: tf.Tensor
    group: Group = field(default_factory=Group)
    """Whose replicas share the products; each worker does all else."""
    draws: int = 1
    factors: tuple[Factor, ...] = ()
    """The preconditioner of neighbours, one for all latents or one each; empty for points."""
    chol: tf.Tensor = field(init=False)
    """Cholesky factor of I + A W A^T [L, R, R]; its leading block [L, M, M] is beta's."""

    def __post_init__(self) -> None:
        self.chol, ok = cholesky(self.projections.precision(self.weights))
        if not bool(ok):
            raise NumericalError(
                "I + A W A^T could not be factorised: the kernel or the noise variance is not"
                " finite, or far too small.",
                "I + A W A^T",
            )
        if self.draws > 1:
            self.weights = tf.repeat(self.weights, self.draws, axis=1)

    @property
    def size(self) -> int:
        """M, the points of beta."""
        return self.projections.size

    def product(
        self, a: tf.Tensor, dtype: tf.DType | None, progress: Progress | None = None
    ) -> tf.Tensor:
        """(K + D) a [N, L S], K in `dtype` and sums in the dtype of a; N^2 (D + L S)."""
        points, group = self.mean.points, self.group
        return (
            gram_product(self.kernel, points, None, a, dtype=dtype, progress=progress, group=group)
            + a / self.weights
        )

    def precondition(self, residual: tf.Tensor) -> tf.Tensor:
        """(Q_R + D)^-1 r [N, L S], N R L S; or by `factors`, N m L S and, with points, N R L S."""
        if self.factors:
            columns = tf.split(residual, len(self.factors), axis=1)
            return tf.concat([one.solve(r) for one, r in zip(self.factors, columns)], axis=1)
        scaled, half = self._halfway(residual)
        back = tf.linalg.triangular_solve(self.chol, half, adjoint=True)
        return scaled - self.weights * self.projections.transposed(_columns(back))

    def inner(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Inner products [1, L S] of the columns, each of a system by itself."""
        return tf.reduce_sum(left * right, axis=0, keepdims=True)

    def gap(self, residual: tf.Tensor) -> float:
        """Return 1/2 r^T (Q + D)^-1 r in nats, summed over latents, by the first worker; N R L S.

        The largest of several draws: the minimum over t of |W^1/2 (r - A^T t)|^2 + |t|^2, an upper
        bound at any t; a difference would be round-off for little noise.
        """
        size = self.projections.size
        half = self._halfway(residual)[1][:, :size]
        t = tf.linalg.triangular_solve(self.chol[:, :size, :size], half, adjoint=True)  # [L, M, S]
        rest = residual - self.projections.transposed(_columns(t))
        squares = tf.reduce_sum(tf.square(t), axis=1)  # [L, S]
        twice = squares + tf.reshape(
            tf.reduce_sum(self.weights * tf.square(rest), axis=0), squares.shape
        )
        # np.max keeps what is not a number
        return self.group.first(0.5 * float(np.max(tf.reduce_sum(twice, axis=0))))

    def inducing_mean(self, a: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        """Best whitened mean of q(u) [M, L] given a; N M L."""
        size = self.projections.size
        half = self._halfway(residual)[1][:, :size]
        chol = self.chol[:, :size, :size]
        return self.projections.times(a, size) + _columns(
            tf.linalg.triangular_solve(chol, half, adjoint=True)
        )

    def inducing_precision(self) -> tf.Tensor:
        """S~^-1 = I + A W A^T of beta [L, M, M]: (D26), and (D46) with a full step."""
        size = self.projections.size
        chol = self.chol[:, :size, :size]
        return tf.matmul(chol, chol, transpose_b=True)

    def largest(self) -> tf.Tensor:
        """Estimate the largest eigenvalue [L] of I + W^1/2 Q_R W^1/2 by power steps; R^2 L each."""
        seed = tf.zeros([2], tf.int32)
        vector = tf.random.stateless_normal(self.chol.shape[:2], seed, dtype=self.chol.dtype)[
            ..., None
        ]
        for _ in range(_POWER_STEPS):
            vector /= tf.norm(vector, axis=1, keepdims=True)
            vector = tf.matmul(self.chol, tf.matmul(self.chol, vector, transpose_a=True))
        return tf.norm(vector, axis=1)[:, 0]

    def rounding(self, dtype: tf.DType) -> float:
        """Estimate the spectral norm of W^1/2 (K' - K) W^1/2 for K' computed in `dtype`."""
        # K' can replace K where this is well below 1. Power steps on some rows; the norm grows with
        # the root of the number of rows.
        if not follows_dtype(self.kernel, self.mean.points):
            return 0.0
        count = len(self.target)
        rows = np.linspace(0, count - 1, min(count, _ROUNDED_ROWS)).astype(int)
        points = data_points(tf.gather(self.mean.inputs, rows), self.mean.shared)
        root = tf.sqrt(tf.gather(self._latent_weights(), rows))
        vector = tf.random.stateless_normal(root.shape, tf.zeros([2], tf.int32), dtype=root.dtype)
        for _ in range(_ROUNDING_STEPS):
            scaled = root * tf.math.divide_no_nan(vector, tf.norm(vector, axis=0))
            low, full = (
                gram_product(self.kernel, points, None, scaled, dtype=kind)
                for kind in (dtype, None)
            )
            vector = root * (low - full)
        size = float(tf.reduce_max(tf.norm(vector, axis=0)))
        return self.group.first(size * np.sqrt(count / len(rows)))

    def _latent_weights(self) -> tf.Tensor:
        return self.weights[:, :: self.draws]

    def _halfway(self, residual: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scaled = self.weights * residual
        pulled = self.projections.times(scaled)
        per_latent = tf.transpose(
            tf.reshape(pulled, [-1, self.chol.shape[0], self.draws]), [1, 0, 2]
        )
        return scaled, tf.linalg.triangular_solve(self.chol, per_latent)


def _columns(per_latent: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.transpose(per_latent, [1, 0, 2]), [per_latent.shape[1], -1])


# ---
# Arguments and results of linear solves.


Report = Callable[[int, float, float], None]
"""Called with the products so far, the share done of the next, and the gap or estimate in nats."""


@dataclass
class MeanSolution:
    """Coefficients a [N, L] and their accuracy."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Bound of the distance from the maximum, in nats; an estimate if not `certified`."""
    products: int
    """Products with K; batches of rows count as their share."""
    gaps: list[float]
    """All gaps computed, from the start's to `gap`."""
    certified: bool = field(default=True, kw_only=True)
    """True if the residual comes from a product in full precision rather than a recursion."""
    reason: str
    """"converged", "time is up", "interrupted", "products done" or "epochs done"."""


Solve = Callable[..., MeanSolution]
"""Solves a `MeanSystem` from a start a [N, L] and K a [N, L], with `deadline`, a value of
`time.perf_counter` after which only the certificate is computed, and `report`.
"""


class Point(NamedTuple):
    """Coefficients of an iteration, with their residual."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Nats."""
    bound: float
    """The bound in nats, up to a constant, at least; for several draws less their largest gap."""
    certified: bool
    """True if the residual comes from a product in full precision."""


def point_of(
    system: MeanSystem, a: tf.Tensor, residual: tf.Tensor, certified: bool = True
) -> Point:
    """Coefficients a [N, L] and their residual [N, L], with gap and bound."""
    gap = system.gap(residual)
    if system.draws > 1:  # the gap is the largest of a draw, which no sum over draws goes with
        return Point(a, residual, gap, -gap, certified)
    dual = -0.5 * float(tf.reduce_sum(a * (system.target + residual)))
    return Point(a, residual, gap, system.group.first(dual) - gap, certified)  # (D32)


def best_of(points: list[Point], tolerance: float) -> Point:
    """Return the highest bound."""
    last, best = points[-1], max(points, key=lambda point: point.bound)
    if best is last or last.gap > tolerance or not (last.certified and best.certified):
        return best
    # The maximum is at most last.bound + last.gap: the gap of a start with a higher bound is small
    # too, however loose its own certificate is.
    return best._replace(gap=max(last.gap - (best.bound - last.bound), 0.0))


def check_gap(gap: float) -> None:
    """Raise `NumericalError` for a gap that is not finite."""
    if not np.isfinite(gap):
        raise NumericalError(
            "A product with the kernel matrix is not finite: standardise X and Y, or pass"
            " float32=False.",
            "K",
        )


# ---
# Mixed latents, f = g W^T.


# The sites of mixed latents share observations, so that a solve for each latent in turn moves all
# others' targets. The observations have one system instead, for c [N, P] and columns w_l of W [P,
# L],
#
#   sum_l K_l c w_l w_l^T + s2 c = y,    a_l = c w_l,
#
# with the coefficients a_l of each latent. Q is made of B, the features A_l of all latents times
# w_l, and I + B^T B / s2 couples the latents' points: certificate and preconditioner know the
# mixing.


@dataclass
class MixedSystem(MeanSystem):
    """The system of c, with one noise variance; arguments as `MeanSystem`, columns are outputs.

    :param weights: 1 / s2 in all entries [N, P].
    :param target: y, less the mean function [N, P].
    :param mixing: W [P, L].

    Cost: N (L R)^2 for R points, memory N R G.
    """

    mixing: tf.Tensor = field(kw_only=True)

    def __post_init__(self) -> None:
        L = int(self.mixing.shape[1])
        product = tf.add_n([_gram(block, L) for block in self.projections.blocks])
        rows = product.shape[0] // L
        inner = tf.matmul(self.mixing, self.mixing, transpose_a=True)  # W^T W
        product *= self.weights[0, 0] * tf.tile(inner, [rows, rows])
        self.chol, ok = cholesky(tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0))
        if not bool(ok):
            raise NumericalError(
                "I + B^T B / s2 could not be factorised: the kernel or the noise variance is not"
                " finite, or far too small.",
                "I + B^T B / s2",
            )

    @classmethod
    def of(
        cls,
        model: BasisGP,
        data: tuple[tf.Tensor, tf.Tensor],
        mean: DataMean,
        projections: RowFeatures,
        group: Group,
    ) -> MixedSystem:
        """The system of a model with a `LinearCoregionalization` and one noise variance."""
        X, Y = data
        noise = cast(tf.Tensor, single_noise_variance(model.likelihood))
        y = Y - model.mean_function(X)
        mixing = tf.convert_to_tensor(model.kernel.W)
        weights = tf.fill(tf.shape(y), 1.0 / noise)
        return cls(model.kernel, mean, projections, weights, y, group, mixing=mixing)

    def start(self, a: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """c [N, P] from coefficients a and means [N, L] of the latents, and the sum of K products.

        The solution at the best mean. One product; none for a = 0.
        """
        if not bool(tf.reduce_any(a != 0.0)):
            return tf.zeros_like(self.target), tf.zeros_like(self.target)
        c = self.weights * (self.target - self.outputs(mean))
        return c, self.product(c, None) - c / self.weights

    def product(
        self, a: tf.Tensor, dtype: tf.DType | None, progress: Progress | None = None
    ) -> tf.Tensor:
        """The left-hand side [N, P] for c [N, P]; L N^2 D."""
        of_latents = gram_product(
            self.kernel,
            self.mean.points,
            None,
            self.latents(a),
            dtype=dtype,
            progress=progress,
            group=self.group,
        )
        return self.outputs(of_latents) + a / self.weights

    def precondition(self, residual: tf.Tensor) -> tf.Tensor:
        half = self._half(residual)
        back = tf.linalg.triangular_solve(self.chol, half, adjoint=True)
        return self.weights * (residual - self._features(back))

    def inner(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(left * right)

    def gap(self, residual: tf.Tensor) -> float:
        t = self._best(residual)
        rest = residual - self._features(t)
        twice = tf.reduce_sum(self.weights * tf.square(rest)) + tf.reduce_sum(tf.square(t))
        return self.group.first(0.5 * float(twice))

    def inducing_mean(self, a: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        known = self.projections.times(self.latents(a), self.size)
        return known + tf.reshape(self._best(residual), known.shape)

    def latents(self, outputs: tf.Tensor) -> tf.Tensor:
        """c W [N, L] for c [N, P]."""
        return tf.matmul(outputs, self.mixing)

    def outputs(self, latents: tf.Tensor) -> tf.Tensor:
        """g W^T [N, P] for g [N, L]."""
        return tf.matmul(latents, self.mixing, transpose_b=True)

    def _latent_weights(self) -> tf.Tensor:
        size = tf.reduce_sum(tf.square(self.mixing))
        return size * tf.repeat(self.weights[:, :1], self.mixing.shape[1], axis=1)

    def _best(self, residual: tf.Tensor) -> tf.Tensor:
        count = self.size * self.mixing.shape[1]
        half = self._half(residual)[:count]
        return tf.linalg.triangular_solve(self.chol[:count, :count], half, adjoint=True)

    def _half(self, residual: tf.Tensor) -> tf.Tensor:
        pulled = self.projections.times(self.latents(self.weights * residual))
        return tf.linalg.triangular_solve(self.chol, tf.reshape(pulled, [-1, 1]))

    def _features(self, columns: tf.Tensor) -> tf.Tensor:
        of_latents = tf.reshape(columns, [-1, self.mixing.shape[1]])
        return self.outputs(self.projections.transposed(of_latents))


def _gram(block: tf.Tensor, latents: int) -> tf.Tensor:
    rows, count = block.shape[1:]
    of_all = tf.broadcast_to(block, [latents, rows, count])
    stacked = tf.reshape(tf.transpose(of_all, [1, 0, 2]), [rows * latents, count])
    return tf.matmul(stacked, stacked, transpose_b=True)
