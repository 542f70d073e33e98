"""The rule for arguments: arrays and tensors keep their dtype, which must be the model's; lists
take it.
"""

from __future__ import annotations

__all__ = [
    "as_array", "as_inputs", "as_pair", "as_values", "check_finite_entries", "check_rate",
    "check_same_rows", "check_type", "check_whole", "float_type", "is_number", "is_whole",
    "known", "of_known_rank", "stacked", "stays_on_disk", "use_column",
]  # fmt: skip

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TypeAlias, TypeGuard

import gpflow
import numpy as np
import tensorflow as tf
from numpy.typing import DTypeLike
from scipy import sparse

from .errors import DataError
from .summaries import short_repr

Array: TypeAlias = "np.ndarray | tf.Tensor"
"""Tensors inside a `tf.function` have no values yet."""

_EXAMPLES = {
    "c": "real and imaginary parts as two columns",
    "M": "dates as days since the first one",
    "m": "durations as seconds",
}
"""Conversions to numbers, by NumPy's letter for the kind."""
_DENSE = {
    tf.SparseTensor: "tf.sparse.to_dense({})",
    tf.RaggedTensor: "{}.to_tensor(), where all rows are as long",
}


def stacked(value: object, name: str) -> np.ndarray:
    """Return NumPy's array of a value, of any kind; ragged lists are refused by name."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        fix = (
            "is ragged: give all rows the same length"
            if "inhomogeneous" in str(error)
            else "is not an array of numbers"
        )
        raise DataError(f"{name} {fix}; pass a matrix.") from error


def as_array(value: object, name: str, dtype: DTypeLike | tf.DType = None) -> Array:
    """Return a dense array of numbers; tensors, in a graph too, stay tensors.

    :param value: an array, a list, a data frame, a tensor or a variable, of any shape [...].
    :param dtype: the model's, for numbers in lists; GPflow's default float if not given.
    """
    wanted = np.dtype(
        gpflow.default_float() if dtype is None else tf.as_dtype(dtype).as_numpy_dtype
    )
    _refuse_structure(value, name)
    if isinstance(value, (tf.Variable, gpflow.Parameter)) or tf.is_tensor(value):
        tensor = tf.convert_to_tensor(value)
        _refuse_kind(tensor.dtype, name, wanted)
        return tensor
    array = stacked(value, name)
    if array.dtype == object and array.ndim == 0:
        raise DataError(
            f"{name} is a {type(value).__name__} and not an array of numbers; pass a matrix."
        )
    if array.dtype == object:
        _refuse_text(array, name)
    _refuse_kind(array.dtype, name, wanted)
    columns = getattr(value, "columns", None)
    # now, while the names are known; gaps in outputs may be allowed
    if columns is not None and name.startswith("X") and array.dtype.kind == "f":
        check_finite_entries(array, name, list(columns))
    return (
        array.astype(wanted)
        if isinstance(value, (list, tuple)) and array.dtype.kind in "iuf"
        else array
    )


def as_values(value: object, name: str, dtype: DTypeLike | tf.DType = None) -> np.ndarray:
    """`as_array` [...] with known values; `DataError` for a tensor inside a `tf.function` too."""
    array = as_array(value, name, dtype)
    if isinstance(array, np.ndarray):
        return array
    check_type(array, name, dtype, labels=True)
    values = known(array)
    if values is None:
        raise DataError(
            f"{name} has no values inside a tf.function; build the model outside of it."
        )
    return np.asarray(values)


def check_type(
    array: Array | tf.TensorSpec,
    name: str,
    dtype: DTypeLike | tf.DType = None,
    labels: bool = False,
) -> None:
    """Refuse numbers of another dtype than the model's.

    :param array: of any shape [...], from `as_array`, or a dataset's specification.
    :param dtype: the model's; GPflow's default float if not given.
    :param labels: accept integers and booleans too.
    """
    wanted = np.dtype(
        gpflow.default_float() if dtype is None else tf.as_dtype(dtype).as_numpy_dtype
    )
    _refuse_kind(array.dtype, name, wanted)
    kind = array.dtype if isinstance(array.dtype, tf.DType) else tf.as_dtype(array.dtype)
    if kind != tf.as_dtype(wanted) and not (labels and (kind.is_integer or kind.is_bool)):
        fix = (
            f"{name}.astype(np.{wanted.name})"
            if isinstance(array, np.ndarray)
            else f"tf.cast({name}, tf.{wanted.name})"
        )
        where = " in dataset.map" if isinstance(array, tf.TensorSpec) else ""
        raise DataError(f"{name} is {kind.name} and the model {wanted.name}; use {fix}{where}.")


def check_finite_entries(
    array: Array, name: str, columns: Sequence[object] | None = None, advice: str = ""
) -> None:
    """Raise `DataError` for NaN or infinite entries [..., N, D], if the values are known.

    :param columns: names [D] of the columns, of a data frame.
    :param advice: ends the message.
    """
    values = known(array)
    if values is None:
        return
    bad = ~np.isfinite(values)
    if np.any(bad):
        place = tuple(int(index) for index in np.argwhere(bad)[0])
        where = "" if columns is None else f", in the column {columns[place[-1]]!r},"
        raise DataError(
            f"{name}{list(place)}{where} is {values[place]}; remove or impute the"
            f" {int(np.sum(np.any(bad, axis=-1)))} rows with entries that are not finite{advice}."
        )


def as_inputs(
    value: object, name: str, num_dims: int | None, dtype: DTypeLike | tf.DType = None
) -> tf.Tensor:
    """Return inputs [..., N, D] of a model as a tensor.

    :param num_dims: D, the model's number of columns; None takes any.
    :param dtype: the model's.
    """
    array = of_known_rank(as_array(value, name, dtype), num_dims)
    rank = array.shape.rank if isinstance(array.shape, tf.TensorShape) else array.ndim
    if rank is not None and rank < 2:
        fix = (
            f"use {name}[:, None], or {name}[None, :] for one input"
            if rank == 1
            else f"{name} must be a matrix"
        )
        raise DataError(f"{name} has shape {tuple(array.shape)}; {fix}.")
    check_type(array, name, dtype)
    columns = None if rank is None else array.shape[-1]
    if num_dims is not None and columns is not None and columns != num_dims:
        raise DataError(
            f"{name} has {columns} columns and the model was made for {num_dims}; pass the columns"
            " that it was trained on."
        )
    check_finite_entries(array, name)
    return tf.convert_to_tensor(array)


def known(array: Array) -> np.ndarray | None:
    """The values of an array [...]; None for a tensor that has none while a function is traced."""
    return array if isinstance(array, np.ndarray) else tf.get_static_value(array)


def of_known_rank(array: Array, columns: int | None = None) -> Array:
    """Return an array; a tensor of unknown rank as [N, `columns`], checked once it has values."""
    if isinstance(array, tf.Tensor) and array.shape.rank is None:
        return tf.ensure_shape(array, [None, columns])
    return array


def use_column(name: str) -> str:
    """The advice for an array of rank 1 that should be a matrix of one column."""
    return f"use {name}[:, None], or {name}.to_numpy()[:, None] of a pandas Series"


def as_pair(data: object) -> tuple[object, object]:
    """X and Y of a pair of arrays; `DataError` for anything else."""
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(f"data is a {type(data).__name__}; pass (X, Y).")
    return data[0], data[1]


def check_same_rows(X: Array | tf.TensorSpec, Y: Array | tf.TensorSpec) -> None:
    """Refuse X [N, D] and Y [N, P] of different numbers of rows, as far as these are known."""
    rows, others = X.shape[0], Y.shape[0]
    if rows is None or others is None or rows == others:
        return
    turned = " Y has them as columns: use Y.T." if others == 1 and Y.shape[-1] == rows else ""
    raise DataError(
        f"X has {rows} rows and Y has {others}; they must be the same observations.{turned}"
    )


def float_type(module: tf.Module | None) -> tf.DType:
    """Dtype of a model: its kernel's first Parameter's, or GPflow's default float."""
    parameters = getattr(module, "parameters", ())
    return tf.as_dtype(parameters[0].dtype if parameters else gpflow.default_float())


def stays_on_disk(array: object) -> bool:
    """True for an array read row by row: a memory map, or another library's, such as HDF5's."""
    in_memory = (
        isinstance(array, np.ndarray)
        or tf.is_tensor(array)
        or sparse.issparse(array)
        or hasattr(array, "iloc")
    )
    in_memory = in_memory or isinstance(
        array, (tf.Variable, tf.RaggedTensor, tf.SparseTensor, gpflow.Parameter)
    )
    # arrays of other libraries, with a dtype that is not NumPy's, are in memory
    sliced = all(hasattr(array, name) for name in ("shape", "__getitem__"))
    sliced = sliced and isinstance(getattr(array, "dtype", None), np.dtype)
    return isinstance(array, np.memmap) or (sliced and not in_memory)


def is_whole(value: object, low: int) -> bool:
    """True for a whole number of at least `low`; not for True and False."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def is_number(value: object) -> TypeGuard[float]:
    """True for a finite number; not for True and False."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def check_whole(low: int, **values: object) -> None:
    """Refuse values that are not whole numbers of at least `low`.

    :param low: the least number.
    :param values: the values, by the name of their argument.
    """
    for name, value in values.items():
        if not is_whole(value, low):
            raise DataError(f"{name}={short_repr(value)} must be a whole number of at least {low}.")


def check_rate(high: float = math.inf, **values: object) -> None:
    """Refuse values that cannot be a step size or tolerance.

    :param high: the largest number.
    :param values: the values, by the name of their argument.
    """
    for name, value in values.items():
        if not (is_number(value) and 0.0 < float(value) <= high):
            limit = "" if math.isinf(high) else f" and at most {high:g}"
            raise DataError(f"{name}={short_repr(value)} must be a number above 0{limit}.")


def _refuse_structure(value: object, name: str) -> None:
    if np.ma.is_masked(value):
        count = int(np.sum(np.ma.getmaskarray(value)))
        raise DataError(
            f"{name} has {count} masked entries; remove or impute their rows, and pass {name}.data."
        )
    dense = next((words for kind, words in _DENSE.items() if isinstance(value, kind)), None)
    dense = "{}.toarray()" if sparse.issparse(value) else dense
    if dense is not None:
        raise DataError(
            f"{name} is a {type(value).__name__} and must be dense; use {dense.format(name)}."
        )


def _refuse_text(array: np.ndarray, name: str) -> None:
    for entry in array.flat:
        try:
            float(entry)
        except (TypeError, ValueError):
            raise DataError(
                f"{name} holds {repr(entry)[:40]} of type {type(entry).__name__}: encode it as a"
                " number, or pass the data frame to gpflow_decoupled.build, which encodes text,"
                " classes, dates and gaps."
            ) from None


def _refuse_kind(dtype: np.dtype | tf.DType, name: str, wanted: np.dtype) -> None:
    if isinstance(dtype, tf.DType):
        if dtype.is_floating or dtype.is_integer or dtype.is_bool:
            return
        kind, text = ("c" if dtype.is_complex else "U"), dtype.name
    elif dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return
    elif dtype.kind in "fO":  # numbers may hide in objects, and extended precision has no tensors
        raise DataError(
            f"{name} is {dtype.name} and the model {wanted.name}; use"
            f" {name}.astype(np.{wanted.name})."
        )
    else:
        kind, text = dtype.kind, "string" if dtype.kind in "US" else dtype.name
    example = _EXAMPLES.get(kind, "classes as 0, 1, 2")
    raise DataError(f"{name} holds {text} values; encode them as numbers, for example {example}.")
