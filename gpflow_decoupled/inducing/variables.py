"""Inducing variables from arrays."""

from __future__ import annotations

__all__ = [
    "as_inducing", "check_disjoint", "check_finite", "check_indices_of", "check_inducing",
    "check_separate", "count_points", "first_equal_row", "fixed_points", "input_dims",
    "point_values", "read", "rows_in",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel
from numpy.typing import ArrayLike, DTypeLike

from ..covariances.latents import check_indices
from ..errors import DataError
from ..inputs import as_array
from ..user_warnings import warn_user

# ---
# Checks of inducing points.


def check_inducing(
    Z: ArrayLike | TensorType,
    name: str,
    num_dims: int | None = None,
    dtype: DTypeLike | tf.DType | None = None,
) -> None:
    """Refuse an array without finite, distinct inducing points [M, D].

    Inside a `tf.function` only the static shape is checked. Cost: M D log M.

    :param Z: an array, a tensor or a variable.
    :param name: for the message, for example "beta".
    :param num_dims: the required number D of columns, if given.
    :param dtype: the required dtype, if given.
    :raises DataError: with the fault and its remedy.

    Example::

        check_inducing(Z, "beta", num_dims=X.shape[1])
    """
    values, shape, Z_dtype = read(Z, name)
    if shape.rank is not None:
        _check_shape(shape, name, num_dims)
    if dtype is not None and Z_dtype != tf.as_dtype(dtype):
        raise DataError(
            f"{name} is {Z_dtype.name} where {tf.as_dtype(dtype).name} is needed: pass "
            f"{name}.astype('{tf.as_dtype(dtype).name}')."
        )
    if values is not None:
        _check_values(values, name)


def check_disjoint(gamma: ArrayLike | TensorType, beta: ArrayLike | TensorType) -> None:
    """Warn if some points gamma [M_gamma, D] are points beta [M_beta, D]; refuse gamma if all are.

    Such a point adds nothing to the mean. Symbolic tensors are not checked. Cost: (M_gamma +
    M_beta) D log(M_gamma + M_beta).

    :raises DataError: if all rows of gamma are rows of beta, or the numbers of columns differ.

    Example::

        beta = inducing.select(X, 50, kernel)
        gamma = inducing.select(X, 500, kernel, given=beta)
        check_disjoint(gamma, beta)  # passes: select chooses no row of `given`
    """
    gamma_values, beta_values = read(gamma, "gamma")[0], read(beta, "beta")[0]
    if gamma_values is None or beta_values is None:
        return
    if gamma_values.shape[1:] != beta_values.shape[1:]:
        raise DataError(
            f"gamma has shape {list(gamma_values.shape)} and beta {list(beta_values.shape)}: "
            "both need rank 2 and as many columns as X."
        )
    count, total = int(np.sum(rows_in(gamma_values, beta_values))), len(gamma_values)
    fix = "choose gamma by inducing.select(X, M, kernel, given=beta)."
    if count == total:
        raise DataError(
            f"All {total} rows of gamma are also rows of beta, so that gamma adds nothing: {fix}"
        )
    if count:
        warn_user(
            f"{count} of the {total} rows of gamma are also rows of beta and add nothing: {fix}",
        )


def read(
    Z: ArrayLike | TensorType, name: str
) -> tuple[np.ndarray | None, tf.TensorShape, tf.DType]:
    """Return values [M, D] (None inside a `tf.function`), static shape and dtype of an array."""
    tensor = tf.convert_to_tensor(as_array(Z, name))
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise DataError(
            f"{name} has dtype {tensor.dtype.name}, not numbers: pass an array of floats [M, D]."
        )
    return tf.get_static_value(tensor), tensor.shape, tensor.dtype


def check_finite(values: np.ndarray, name: str) -> None:
    """Raise `DataError` if an entry of an array [N, D] is NaN or infinite."""
    bad = np.flatnonzero(~np.all(np.isfinite(values), axis=1))
    if len(bad):
        raise DataError(
            f"{name} has NaN or infinite values in {len(bad)} of {len(values)} rows, row {bad[0]}"
            " first: remove or repair those rows."
        )


def first_equal_row(rows: np.ndarray) -> np.ndarray:
    """Return for each row of [N, D] the index of the first equal row, [N]; cost N D log N."""
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]  # numpy 2.0 alone returns a column


def rows_in(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return [N] booleans: True where a row of [N, D] is also a row of `others` [M, D]."""
    return first_equal_row(np.concatenate([others, rows]))[len(others) :] < len(others)


def _check_shape(shape: tf.TensorShape, name: str, num_dims: int | None) -> None:
    if shape.rank != 2:
        fix = f"; use {name}[:, None] if there is one input dimension" if shape.rank == 1 else ""
        raise DataError(f"{name} has shape {shape.as_list()}, but must be [M, D]{fix}.")
    rows, columns = shape.as_list()
    if rows == 0 or columns == 0:
        raise DataError(
            f"{name} is empty (shape {shape.as_list()}): pass at least one point [1, D]."
        )
    if num_dims is not None and columns is not None and columns != num_dims:
        raise DataError(
            f"{name} has {columns} columns, the inputs X have {num_dims}: use the columns of X."
        )


def _check_values(values: np.ndarray, name: str) -> None:
    check_finite(values, name)
    first = first_equal_row(values)
    repeated = np.flatnonzero(first != np.arange(len(values)))
    if len(repeated):
        raise DataError(
            f"{name} has {len(repeated)} duplicate rows: row {repeated[0]} equals row"
            f" {first[repeated[0]]}. A copy adds nothing to q, and makes k(Z, Z) singular,"
            " which GPflow covers by jitter; keep points distinct: use numpy.unique(..., axis=0),"
            " or inducing.select."
        )


# ---


def as_inducing(
    points: ArrayLike | TensorType | InducingVariables, name: str, kernel: Kernel | None = None
) -> InducingVariables:
    """Return inducing variables of an array, or checked inducing variables unchanged.

    :param points: an array [M, D], which becomes trainable inducing points, or inducing variables.
    :param kernel: a multi-output kernel's latents share the points.
    """
    if isinstance(points, InducingVariables):
        for values in point_values(points):
            check_inducing(values, name)
        return points
    if isinstance(points, str):
        raise DataError(
            f'{name}={points!r}: pass points [M, D]. A mean on all data is gamma="data" of'
            " ODVGP, or a MeanOnDataBasis(beta)."
        )
    check_inducing(points, name)
    variable = InducingPoints(as_array(points, name))
    return (
        SharedIndependentInducingVariables(variable)
        if isinstance(kernel, MultioutputKernel)
        else variable
    )


def fixed_points(X: ArrayLike) -> InducingPoints:
    """Return inputs [N, D] as points that are never trained, even by `gpflow.set_trainable`."""
    # With moved inputs the posterior would be of other data.
    values = tf.constant(np.asarray(X, default_float()))
    # no values, which workers would send around
    points = InducingPoints(tf.zeros([1, values.shape[1]], values.dtype))
    # a constant: `gpflow.set_trainable` would train a Parameter or a variable
    points.Z = values
    return points


def check_separate(gamma: InducingVariables, beta: InducingVariables) -> None:
    """Apply `check_disjoint` to the points of each latent."""
    for mean_points, points in zip(point_values(gamma), point_values(beta)):
        check_disjoint(mean_points, points)


def check_indices_of(variable: InducingVariables, name: str, kernel: Kernel) -> None:
    """Refuse points whose entries are no index where the kernel reads one.

    :param name: for the message, for example "gamma".
    """
    for points in point_values(variable):
        check_indices(tf.convert_to_tensor(points), name, kernel)


def point_values(variable: InducingVariables) -> list[TensorType]:
    """The inducing points [M, D], one array per latent or one shared; none for `Weights`."""
    parts = getattr(variable, "inducing_variables", (variable,))
    return [part.Z for part in parts if type(part) is InducingPoints]


def count_points(variable: InducingVariables) -> int:
    """The number M of inducing variables, a Python integer also inside a `tf.function`."""
    size = variable.shape[0]
    return int(variable.num_inducing) if size is None else int(size)


def input_dims(variable: InducingVariables) -> int | None:
    """The number D of input columns; None unless the variables are points of the input space."""
    points = point_values(variable)
    return int(points[0].shape[1]) if points else None
