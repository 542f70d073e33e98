"""The matrix A of w = A v + b: its coordinates, its determinant, and the projections of features (section 2.2).

| structure | A | coordinates |
|---|---|---|
| "full" | any | D^2 |
| "lower" | lower triangular: fixes the rotation, which only a normal base does not mind | D (D + 1) / 2 |
| "lu" | L U, L lower, U upper with ones on its diagonal; permutations of v make it as general as "full" | D^2 |
| "low_rank" | diag(s) + F S^T | D (2 k + 1) |

The rotation of "low_rank" is not free, so that its start is worse and its optimum may be; for larger D a full A of which
few dimensions are not normal costs less and finds more (`non_normal` of the basis).

Signs of the determinant are free: only its logarithm's size enters.
"""

from __future__ import annotations

__all__ = ["STRUCTURES", "AffineMap", "FullMap", "LUMap", "LowRankMap", "LowerMap", "affine_map"]

import abc
from typing import Any

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module
from gpflow.config import default_float
from gpflow.utilities import triangular

from ..errors import DataError, check_option

STRUCTURES = ("full", "lower", "lu", "low_rank")
_LEAST_RATIO = 1e-12
"""Least ratio of singular values of a matrix that is not called singular."""
_TURNS = 20


class AffineMap(Module, abc.ABC):
    """A matrix A [D, D] in some coordinates."""

    structure: str
    rotates: bool = False
    """Whether A Q can be had for every orthogonal Q, up to a permutation of the columns."""

    @abc.abstractmethod
    def matrix(self) -> tf.Tensor:
        """A [D, D]."""

    @abc.abstractmethod
    def log_det(self) -> tf.Tensor:
        """log|det A|, a scalar; minus infinity or NaN where A is singular."""

    @abc.abstractmethod
    def assign_matrix(self, A: np.ndarray) -> None:
        """Become A [D, D], or A with its columns in another order where the structure needs it, or the nearest to it."""

    def project(self, features: tf.Tensor) -> tf.Tensor:
        """The projections alpha [N, D] = features A for features [N, D]; N D^2."""
        return tf.matmul(features, self.matrix())


class FullMap(AffineMap):
    """Any A [D, D]."""

    structure, rotates = "full", True

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = Parameter(A, dtype=default_float())

    def matrix(self) -> tf.Tensor:
        """A [D, D]."""
        return tf.convert_to_tensor(self.A)

    def log_det(self) -> tf.Tensor:
        """By an LU factorisation, a scalar; D^3."""
        return tf.linalg.slogdet(self.A).log_abs_determinant

    def assign_matrix(self, A: np.ndarray) -> None:
        """A [D, D]."""
        self.A.assign(A)


class LowerMap(AffineMap):
    """A [D, D] lower triangular, with any diagonal."""

    structure = "lower"

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = Parameter(np.tril(A), transform=triangular(), dtype=default_float())

    def matrix(self) -> tf.Tensor:
        """A [D, D]."""
        return tf.convert_to_tensor(self.A)

    def log_det(self) -> tf.Tensor:
        """A scalar."""
        return _log_product(self.A)

    def assign_matrix(self, A: np.ndarray) -> None:
        """The lower triangle of A Q, Q the rotation that makes it one: for A [D, D] any root of the same covariance."""
        R: Any = np.linalg.qr(A.T, mode="r")
        self.A.assign(R.T)


class LUMap(AffineMap):
    """A = L U [D, D], the paper's form."""

    structure, rotates = "lu", True

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        L, U = _columns_pivoted(A)
        self.L = Parameter(L, transform=triangular(), dtype=default_float())
        self.U_transposed = Parameter(U.T, transform=triangular(), dtype=default_float())

    def _upper(self) -> tf.Tensor:
        """U [D, D]; what the Parameter has on the diagonal is not looked at."""
        U = tf.transpose(self.U_transposed)
        return tf.linalg.set_diag(U, tf.ones_like(tf.linalg.diag_part(U)))

    def matrix(self) -> tf.Tensor:
        """A [D, D]; D^3."""
        return tf.matmul(self.L, self._upper())

    def log_det(self) -> tf.Tensor:
        """A scalar."""
        return _log_product(self.L)

    def project(self, features: tf.Tensor) -> tf.Tensor:
        """The projections alpha [N, D] of features [N, D]."""
        return tf.matmul(tf.matmul(features, self.L), self._upper())

    def assign_matrix(self, A: np.ndarray) -> None:
        """A [D, D] with its columns in the order of pivots."""
        L, U = _columns_pivoted(A)
        self.L.assign(L)
        self.U_transposed.assign(U.T)


class LowRankMap(AffineMap):
    """A = diag(s) + F S^T with F, S [D, k]."""

    structure = "low_rank"

    def __init__(self, A: np.ndarray, rank: int) -> None:
        super().__init__()
        s, F, S = _low_rank(A, rank)
        self.s, self.F, self.S = (Parameter(part, dtype=default_float()) for part in (s, F, S))

    def matrix(self) -> tf.Tensor:
        """A [D, D]."""
        return tf.linalg.diag(tf.convert_to_tensor(self.s)) + tf.matmul(self.F, self.S, transpose_b=True)

    def log_det(self) -> tf.Tensor:
        """By the determinant of a matrix of k rows, a scalar; D k^2."""
        inner = tf.matmul(self.S, self.F / self.s[:, None], transpose_a=True)
        inner += tf.eye(tf.shape(inner)[0], dtype=inner.dtype)
        return tf.reduce_sum(tf.math.log(tf.abs(self.s))) + tf.linalg.slogdet(inner).log_abs_determinant

    def project(self, features: tf.Tensor) -> tf.Tensor:
        """The projections alpha [N, D] of features [N, D]; N D k."""
        return features * self.s + tf.matmul(tf.matmul(features, self.F), self.S, transpose_b=True)

    def assign_matrix(self, A: np.ndarray) -> None:
        """The diagonal of A [D, D], and the best approximation of the rest."""
        for parameter, part in zip((self.s, self.F, self.S), _low_rank(A, int(self.F.shape[1]))):
            parameter.assign(part)


def affine_map(A: Any, structure: str = "full", rank: int = 5) -> AffineMap:
    """The map for a matrix A [D, D], to which it is equal up to what its structure can be.

    Raises `DataError` for a matrix that is not square, not finite or singular, or a rank below 1, `UnknownOptionError` for
    another structure.
    """
    check_option("structure", structure, STRUCTURES)
    A = np.asarray(A, dtype=default_float())
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.size == 0:
        raise DataError(f"A has shape {A.shape}; it must be [D, D], one row and one column a dimension.")
    if not np.all(np.isfinite(A)):
        raise DataError("A has entries that are not finite: start at the identity, by leaving A out.")
    values = np.linalg.svd(A, compute_uv=False)
    if values[-1] <= _LEAST_RATIO * values[0]:
        raise DataError(
            f"A is singular: its singular values reach from {values[-1]:.3g} to {values[0]:.3g}, and q would have no density. "
            "Start at the identity, by leaving A out."
        )
    if structure == "low_rank":
        if not isinstance(rank, int | np.integer) or rank < 1:
            raise DataError(f"rank={rank!r}: it must be a whole number of at least 1.")
        return LowRankMap(A, min(int(rank), len(A)))
    kinds: dict[str, Any] = {"full": FullMap, "lower": LowerMap, "lu": LUMap}
    return kinds[structure](A)


def _log_product(triangle: Any) -> tf.Tensor:
    return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(triangle))))


def _columns_pivoted(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U [D, D] with L U = A P: L lower, U upper with ones on the diagonal, P the permutation that pivoting finds."""
    rotation, root = np.linalg.qr(A.T)  # A = root^T rotation^T: pivots of a rotation do not depend on the scale of rows
    _, lower, upper = scipy.linalg.lu(rotation)
    return root.T @ upper.T, lower.T.copy()


def _low_rank(A: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts s [D], F and S [D, k], by turns; with little beside the diagonal F starts off zero, where gradients vanish."""
    s, floor = np.diag(A).copy(), 0.1 * np.sqrt(np.mean(A**2))
    for _ in range(_TURNS):
        s = np.where(np.abs(s) < floor, floor, s)
        left, values, right = np.linalg.svd(A - np.diag(s))
        product = (left[:, :rank] * values[:rank]) @ right[:rank]
        s, used = np.diag(A - product).copy(), s
    root = np.sqrt(np.maximum(values[:rank], 1e-4 * np.mean(np.abs(used))))
    return used, left[:, :rank] * root, right[:rank].T * root
