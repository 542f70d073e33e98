"""The matrix A of w = A v + b."""

# | structure | A | numbers |
# |---|---|---|
# | "full" | any matrix | D^2 |
# | "lower" | lower triangular | D (D + 1) / 2 |
# | "lu" | L U, L lower, U unit upper; as general up to the order of the v_d | D^2 |
# | "low_rank" | diag(s) + F S^T with k columns in F and S | D (2 k + 1) |
#
# "lower" and "low_rank" fix the rotation of A, on which a non-Gaussian q depends. For larger D, a
# full A with few non-normal variables costs less and reaches a higher bound.

from __future__ import annotations

__all__ = ["STRUCTURES", "AffineMap", "FullMap", "LUMap", "LowRankMap", "LowerMap", "affine_map"]

import abc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.linalg
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.utilities import triangular

from ..errors import DataError, check_option
from ..summaries import short_repr

STRUCTURES = ("full", "lower", "lu", "low_rank")
_LEAST_RATIO = 1e-12
"""Ratio of extreme singular values below which a matrix counts as singular."""
_TURNS = 20
"""Alternations when a matrix is approximated by diag(s) + F S^T."""


class AffineMap(Module, abc.ABC):
    """A matrix A [D, D] as a function of Parameters."""

    structure: str
    rotates: bool = False
    """The structure represents A Q for every orthogonal Q, up to a permutation of columns."""

    @abc.abstractmethod
    def matrix(self) -> tf.Tensor:
        """The matrix A [D, D]."""

    @abc.abstractmethod
    def log_det(self) -> tf.Tensor:
        """log|det A|, a scalar; minus infinity or NaN for a singular A."""

    @abc.abstractmethod
    def assign_matrix(self, A: np.ndarray) -> None:
        """Set the matrix to A [D, D], up to a permutation of columns or an approximation."""

    def project(self, features: tf.Tensor) -> tf.Tensor:
        """alpha = features A, [N, D], for features [N, D]; cost N D^2."""
        return tf.matmul(features, self.matrix())


class FullMap(AffineMap):
    """An unconstrained matrix A [D, D]."""

    structure, rotates = "full", True

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = Parameter(A, dtype=default_float())

    def matrix(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.A)

    def log_det(self) -> tf.Tensor:
        return tf.linalg.slogdet(self.A).log_abs_determinant

    def assign_matrix(self, A: np.ndarray) -> None:
        self.A.assign(A)


class LowerMap(AffineMap):
    """A lower triangular matrix A [D, D], with any diagonal."""

    structure = "lower"

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = Parameter(np.tril(A), transform=triangular(), dtype=default_float())

    def matrix(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.A)

    def log_det(self) -> tf.Tensor:
        return _log_product(self.A)

    def assign_matrix(self, A: np.ndarray) -> None:
        """Set the lower triangle A Q, Q orthogonal, a root of the same covariance A A^T [D, D]."""
        R = np.linalg.qr(A.T)[1]
        self.A.assign(R.T)


class LUMap(AffineMap):
    """A = L U [D, D], as in Challis & Barber 2012."""

    structure, rotates = "lu", True

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        L, U = _columns_pivoted(A)
        self.L = Parameter(L, transform=triangular(), dtype=default_float())
        self.U_transposed = Parameter(U.T, transform=triangular(), dtype=default_float())

    def _upper(self) -> tf.Tensor:
        U = tf.transpose(self.U_transposed)
        return tf.linalg.set_diag(U, tf.ones_like(tf.linalg.diag_part(U)))

    def matrix(self) -> tf.Tensor:
        return tf.matmul(self.L, self._upper())

    def log_det(self) -> tf.Tensor:
        return _log_product(self.L)

    def project(self, features: tf.Tensor) -> tf.Tensor:
        return tf.matmul(tf.matmul(features, self.L), self._upper())

    def assign_matrix(self, A: np.ndarray) -> None:
        """Set A [D, D], columns in the order of the pivots."""
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
        return tf.linalg.diag(tf.convert_to_tensor(self.s)) + tf.matmul(
            self.F, self.S, transpose_b=True
        )

    def log_det(self) -> tf.Tensor:
        inner = tf.matmul(self.S, self.F / self.s[:, None], transpose_a=True)
        inner += tf.eye(tf.shape(inner)[0], dtype=inner.dtype)
        return (
            tf.reduce_sum(tf.math.log(tf.abs(self.s)))
            + tf.linalg.slogdet(inner).log_abs_determinant
        )

    def project(self, features: tf.Tensor) -> tf.Tensor:
        return features * self.s + tf.matmul(tf.matmul(features, self.F), self.S, transpose_b=True)

    def assign_matrix(self, A: np.ndarray) -> None:
        """Set the best approximation of A [D, D] by a diagonal plus rank k."""
        for parameter, part in zip((self.s, self.F, self.S), _low_rank(A, int(self.F.shape[1]))):
            parameter.assign(part)


def affine_map(A: npt.ArrayLike, structure: str = "full", rank: int = 5) -> AffineMap:
    """Return the map of a structure whose matrix is A, or nearest to A.

    :param A: [D, D], not singular.
    :param structure: "full", "lower", "lu" or "low_rank", of rank k = `rank` up to D.
    """
    check_option("structure", structure, STRUCTURES)
    A = np.asarray(A, dtype=default_float())
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.size == 0:
        raise DataError(
            f"A has shape {A.shape}; it must be [D, D], with one row and one column per dimension."
        )
    if not np.all(np.isfinite(A)):
        raise DataError(
            "A has entries that are not finite: start at the identity, by leaving A out."
        )
    values = np.linalg.svd(A, compute_uv=False)
    if values[-1] <= _LEAST_RATIO * values[0]:
        raise DataError(
            f"A is singular: its singular values range from {values[-1]:.3g} to {values[0]:.3g},"
            " and q would have no density. Start at the identity, by leaving A out."
        )
    if structure == "low_rank":
        if not isinstance(rank, int | np.integer) or rank < 1:
            raise DataError(f"rank={short_repr(rank)}: it must be a whole number of at least 1.")
        return LowRankMap(A, min(int(rank), len(A)))
    kinds: dict[str, Callable[[np.ndarray], AffineMap]] = {
        "full": FullMap,
        "lower": LowerMap,
        "lu": LUMap,
    }
    return kinds[structure](A)


def _log_product(triangle: TensorType) -> tf.Tensor:
    return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(triangle))))


def _columns_pivoted(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # A = root^T rotation^T; pivots of a rotation do not depend on the scale of the rows of A
    rotation, root = np.linalg.qr(A.T)
    _, lower, upper = scipy.linalg.lu(rotation)
    return root.T @ upper.T, lower.T.copy()


def _low_rank(A: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # For a nearly diagonal A, F and S are kept away from zero, where both gradients vanish.
    s, floor = np.diag(A).copy(), 0.1 * np.sqrt(np.mean(A**2))
    for _ in range(_TURNS):
        s = np.where(np.abs(s) < floor, floor, s)
        left, values, right = np.linalg.svd(A - np.diag(s))
        product = (left[:, :rank] * values[:rank]) @ right[:rank]
        s, used = np.diag(A - product).copy(), s
    root = np.sqrt(np.maximum(values[:rank], 1e-4 * np.mean(np.abs(used))))
    return used, left[:, :rank] * root, right[:rank].T * root
