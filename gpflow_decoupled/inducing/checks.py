"""Checks of inducing inputs, made once, before they cost a training run."""

from __future__ import annotations

__all__ = ["check_disjoint", "check_finite", "check_inducing", "first_equal_row", "read", "rows_in"]

import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import DataError


def check_inducing(Z: Any, name: str, num_dims: int | None = None, dtype: Any = None) -> None:
    """Raise `DataError`, a `ValueError`, unless Z [M, D] can serve as inducing inputs.

    Z is an array, a tensor or a variable; `name` is what the message calls it. It must have rank 2, at least
    one row, `num_dims` columns and the dtype `dtype` (each if given), finite entries, and no two equal rows.
    A tensor whose values are not known yet, inside a `tf.function`, is checked as far as its static shape
    goes. Cost M D log M.
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


def check_disjoint(gamma: Any, beta: Any) -> None:
    """Warn if some rows of gamma [M_gamma, D] are rows of beta [M_beta, D]; raise `DataError` if all are.

    What gamma adds to the mean is its residual given beta, which is zero at the points of beta. Inputs whose
    values are not known yet are not checked. Cost (M_gamma + M_beta) D log(M_gamma + M_beta).
    """
    gamma_values, beta_values = read(gamma, "gamma")[0], read(beta, "beta")[0]
    if gamma_values is None or beta_values is None:
        return
    if gamma_values.shape[1:] != beta_values.shape[1:]:
        raise DataError(
            f"gamma has shape {list(gamma_values.shape)} and beta {list(beta_values.shape)}: "
            "both need rank 2 and the same number of columns, that of X."
        )
    count, total = int(np.sum(rows_in(gamma_values, beta_values))), len(gamma_values)
    fix = "choose gamma by inducing.select(X, M, kernel, given=beta)."
    if count == total:
        raise DataError(f"All {total} rows of gamma are also rows of beta, so that gamma adds nothing: {fix}")
    if count:
        warnings.warn(
            f"{count} of the {total} rows of gamma are also rows of beta and add nothing: {fix}", stacklevel=2
        )


def read(Z: Any, name: str) -> tuple[np.ndarray | None, tf.TensorShape, tf.DType]:
    """Values (None when they are not known yet), static shape and dtype."""
    try:  # a list goes through numpy, because TensorFlow alone would make it float32
        tensor = tf.convert_to_tensor(Z if hasattr(Z, "dtype") else np.asarray(Z))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not an array of numbers: pass one of shape [M, D].") from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise DataError(f"{name} has dtype {tensor.dtype.name}, not numbers: pass an array of floats [M, D].")
    return tf.get_static_value(tensor), tensor.shape, tensor.dtype


def check_finite(values: np.ndarray, name: str) -> None:
    """Raise `DataError` if an entry of [N, D] is NaN or infinite."""
    bad = np.flatnonzero(~np.all(np.isfinite(values), axis=1))
    if len(bad):
        raise DataError(
            f"{name} has NaN or infinite values in {len(bad)} of {len(values)} rows, row {bad[0]} first: "
            "remove or repair those rows."
        )


def first_equal_row(rows: np.ndarray) -> np.ndarray:
    """For each row of [N, D] the index of the first row that equals it exactly; N D log N."""
    order = np.lexsort(rows.T[::-1])  # stable, so the first of equal rows leads its group
    in_order = rows[order]
    is_new = np.ones(len(rows), bool)
    is_new[1:] = np.any(in_order[1:] != in_order[:-1], axis=1)
    first = np.empty(len(rows), np.int64)
    first[order] = order[np.flatnonzero(is_new)[np.cumsum(is_new) - 1]]
    return first


def rows_in(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """For each row of [N, D], whether it is also a row of `others` [M, D]."""
    return first_equal_row(np.concatenate([others, rows]))[len(others) :] < len(others)


def _check_shape(shape: tf.TensorShape, name: str, num_dims: int | None) -> None:
    if shape.rank != 2:
        fix = f"; use {name}[:, None] if there is one input dimension" if shape.rank == 1 else ""
        raise DataError(f"{name} has shape {shape.as_list()}, but must be [M, D]{fix}.")
    rows, columns = shape.as_list()
    if rows == 0 or columns == 0:
        raise DataError(f"{name} is empty (shape {shape.as_list()}): pass one point at least.")
    if num_dims is not None and columns is not None and columns != num_dims:
        raise DataError(f"{name} has {columns} columns, the inputs X have {num_dims}: use the columns of X.")


def _check_values(values: np.ndarray, name: str) -> None:
    check_finite(values, name)
    first = first_equal_row(values)
    repeated = np.flatnonzero(first != np.arange(len(values)))
    if len(repeated):
        raise DataError(
            f"{name} has {len(repeated)} duplicate rows: row {repeated[0]} equals row {first[repeated[0]]}. "
            "Inducing points must be distinct: use numpy.unique(..., axis=0), or inducing.select."
        )
