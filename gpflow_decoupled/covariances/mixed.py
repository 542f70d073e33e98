"""Stationary kernels of numbers and categories, with one lengthscale for each category.

A category is one column of codes, whole numbers whose order and size mean nothing. Its levels are
as far from each other as the columns of 0 and 1 of a code are, which share a lengthscale l:

    r^2 = sum_d (x_d - z_d)^2 / l_d^2 + sum_c 2 [x_c != z_c] / l_c^2
"""

from __future__ import annotations

__all__ = [
    "MIXED", "Mixed", "MixedExponential", "MixedMatern12", "MixedMatern32", "MixedMatern52",
    "MixedSquaredExponential", "NUM_CODES", "UNKNOWN", "between_levels", "code_columns",
    "kernel_of", "over_categories", "penalties", "radial", "spreads", "takes_categories",
    "without_codes",
]  # fmt: skip

from collections.abc import Sequence
from typing import ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import (
    Constant,
    Exponential,
    IsotropicStationary,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
    White,
)
from gpflow.utilities.ops import difference_matrix, square_distance

from ..errors import DataError
from ..inputs import is_whole

UNKNOWN, NUM_CODES = 2**23, 2**24
"""Codes from the first on are of levels that training did not have; all are below the second, so
that single precision has them."""


class Mixed(IsotropicStationary):
    """A stationary kernel that reads some columns as codes of categories.

    Two levels are 2^(1/2) apart, divided by the lengthscale of their column: as if each level
    had a column of 0 and 1, with one lengthscale for all. A level without data has the same
    distance to every other level.

    :param variance: of f.
    :param lengthscales: of each active column, or one for all.
    :param categories: the columns of X with codes, whole numbers from 0 to 2^24 - 1.
    :param active_dims: the columns of X that the kernel reads; all if not given.
    :raises DataError: for categories that are no active columns.

    Example::

        kernel = MixedMatern52(lengthscales=[1.0, 1.0, 2.0], categories=[2])
    """

    radial: ClassVar[type[IsotropicStationary]]
    """GPflow's kernel of the same distances."""

    def __init__(
        self,
        variance: TensorType = 1.0,
        lengthscales: TensorType = 1.0,
        *,
        categories: Sequence[int],
        active_dims: Sequence[int] | slice | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(variance, lengthscales, active_dims=active_dims, name=name)
        columns = [int(one) for one in categories if is_whole(one, 0)]
        known = [one for one in columns if one in _active_columns(self)]
        if not known or len(known) < len(categories):
            raise DataError(
                f"categories={list(categories)} must be numbers of active columns of X, one at"
                " least: pass for example categories=[2] for the third one."
            )
        self.categories = tuple(columns)

    def scaled_squared_euclid_dist(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """r^2 [..., N, ..., M] of active columns."""
        numbers = (one if one is None else without_codes(self, one) for one in (X, X2))
        squares = square_distance(*map(self.scale, numbers))
        return squares + sum(between_levels(self, X, X2))


class MixedMatern52(Mixed, Matern52):
    """Matern 5/2 of numbers and categories, see `Mixed`."""

    radial = Matern52


class MixedMatern32(Mixed, Matern32):
    """Matern 3/2 of numbers and categories, see `Mixed`."""

    radial = Matern32


class MixedMatern12(Mixed, Matern12):
    """Matern 1/2 of numbers and categories, see `Mixed`."""

    radial = Matern12


class MixedExponential(Mixed, Exponential):
    """GPflow's exponential kernel of numbers and categories, see `Mixed`."""

    radial = Exponential


class MixedSquaredExponential(Mixed, SquaredExponential):
    """The squared exponential of numbers and categories, see `Mixed`."""

    radial = SquaredExponential


MIXED = {
    kind.radial: kind
    for kind in (
        MixedMatern52, MixedMatern32, MixedMatern12, MixedExponential, MixedSquaredExponential,
    )
}  # fmt: skip
"""By GPflow's kernel of numbers alone."""


def radial(kernel: Kernel) -> type:
    """GPflow's kernel of the same distances for one over categories, else its own class."""
    return kernel.radial if type(kernel) in MIXED.values() else type(kernel)


def kernel_of(
    kind: type[IsotropicStationary], lengthscales: np.ndarray, categories: Sequence[int] = (),
    active_dims: Sequence[int] | slice | None = None,
) -> Kernel:  # fmt: skip
    """A kernel of GPflow's, over categories where there are some.

    :param lengthscales: of each active column, [D].
    """
    if not len(categories):
        return kind(lengthscales=lengthscales, active_dims=active_dims)
    return MIXED[kind](lengthscales=lengthscales, active_dims=active_dims, categories=categories)


def takes_categories(kernel: Kernel) -> bool:
    """True for kernels that may read any column as a category: stationary ones of one kind or
    another, constants, white noise, sums and products.
    """
    if type(kernel) in (Sum, Product):
        return all(map(takes_categories, kernel.kernels))
    return type(kernel) in (*MIXED, *MIXED.values(), Constant, White)


def over_categories(kernel: Kernel, categories: Sequence[int]) -> Kernel:
    """A copy of a kernel of which `takes_categories` is true, and that reads them as such."""
    if type(kernel) in (Sum, Product) and categories:
        return type(kernel)([over_categories(part, categories) for part in kernel.kernels])
    copy, active = gpflow.utilities.deepcopy(kernel), _active_columns(kernel)
    own = [one for one in categories if one in active]
    if not own or type(kernel) not in MIXED:
        return copy
    made = MIXED[type(kernel)](categories=own, active_dims=kernel.active_dims, name=kernel.name)
    made.variance, made.lengthscales = copy.variance, copy.lengthscales
    return made


def _active_columns(kernel: Kernel) -> Sequence[int]:
    dims = kernel.active_dims
    return range(NUM_CODES)[dims] if isinstance(dims, slice) else list(map(int, dims))


# ---
# Parts of a distance. Without categories nothing is added.


def code_columns(kernel: Kernel) -> list[int]:
    """Places of the codes among the active columns of a kernel; none unless it is `Mixed`."""
    if not isinstance(kernel, Mixed):
        return []
    active = _active_columns(kernel)
    return [active.index(one) for one in kernel.categories]


def without_codes(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """Active columns X [..., N, D]; codes of categories become zeros."""
    places = code_columns(kernel)
    if not places:
        return X
    X = tf.convert_to_tensor(X)
    numbers = np.ones(X.shape[-1], X.dtype.as_numpy_dtype)
    numbers[places] = 0.0
    return X * numbers


def penalties(kernel: Kernel, columns: int) -> tf.Tensor:
    """2 / l_c^2 for codes and 0 for numbers, [D], of D active columns."""
    mask = np.zeros(columns)
    mask[code_columns(kernel)] = 2.0
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    return tf.constant(mask, lengthscales.dtype) / tf.square(lengthscales)


def between_levels(kernel: Kernel, X: TensorType, Z: TensorType | None = None) -> list[tf.Tensor]:
    """The sum of 2 [x_c != z_c] / l_c^2 over categories, [..., N, ..., M], alone in a list.

    Empty for kernels of numbers alone. Differentiable in the lengthscales.

    :param X: active columns [..., N, D], not divided by lengthscales.
    :param Z: [..., M, D]; None for X, batch by batch.
    """
    places = code_columns(kernel)
    if not places:
        return []
    X = tf.convert_to_tensor(X)
    Z = None if Z is None else tf.convert_to_tensor(Z)
    squares = penalties(kernel, int(X.shape[-1]))
    total = 0.0
    for place in places:
        codes = (one if one is None else one[..., place : place + 1] for one in (X, Z))
        differ = tf.cast(difference_matrix(*codes)[..., 0] != 0.0, X.dtype)
        total += squares[place] * differ
    return [total]


def spreads(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """Standard deviations [D] of active columns X [N, D], to measure lengthscales in: 1 for codes,
    whose levels are 2^(1/2) apart, and for constant columns.
    """
    spread = np.std(X, axis=0)
    spread[code_columns(kernel)] = 0.0
    return np.where(spread > 0.0, spread, 1.0)
