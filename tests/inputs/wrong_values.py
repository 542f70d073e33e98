"""What can be wrong with a value of each kind, and what a refusal must say then.

This is the one table of bad input: `tests/test_bad_input.py` runs it. `entries.py` has the public
calls and the kinds of their arguments.
"""

from __future__ import annotations

__all__ = ["OTHER_FLOATS", "WRONG_VALUES", "Wrong"]

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from scipy import sparse


class Wrong(NamedTuple):
    """A wrong value."""

    change: Callable[[Any], object]
    """makes it of a right one"""
    says: str = ""
    """regular expression that the refusal must match"""


def _with(value: float) -> Callable[[np.ndarray], object]:
    def changed(array: np.ndarray) -> np.ndarray:
        array = np.array(array, float)
        array.flat[array.size // 2] = value
        return array

    return changed


def _objects(array: np.ndarray) -> np.ndarray:
    array = array.astype(object)
    array.flat[0] = None
    return array


def _masked(array: np.ndarray) -> np.ma.MaskedArray:
    mask = np.zeros(array.shape, bool)
    mask.flat[0] = True
    return np.ma.MaskedArray(array, mask)


def _frame_with_text(array: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(array)
    frame["name"] = "a"
    return frame


def _ragged(array: np.ndarray) -> list:
    rows = array.tolist()
    return [rows[0] * 2, *rows[1:]]


def _constant(*values: Any) -> dict[str, Wrong]:
    """Values that are wrong whatever the right one is."""
    return {str(bad): Wrong(lambda _, bad=bad: bad) for bad in values}


def _without(kind: dict[str, Wrong], *names: str) -> dict[str, Wrong]:
    return {words: wrong for words, wrong in kind.items() if words not in names}


NOT_DENSE = "must be dense; use|sparse"
OTHER_FLOATS = {
    "float32": Wrong(lambda a: a.astype(np.float32), r"float32 .*use \w+.astype\(np.float64\)"),
    "a float32 tensor": Wrong(lambda a: tf.cast(a, tf.float32), r"use tf.cast\(\w+, tf.float64\)"),
}
if np.dtype(np.longdouble).itemsize > 8:  # on some platforms it is float64
    OTHER_FLOATS["extended precision"] = Wrong(lambda a: a.astype(np.longdouble))
ARRAY = {
    "a NaN": Wrong(_with(np.nan), r"nan|NaN|not finite"),
    "an infinity": Wrong(_with(np.inf), r"inf|not finite"),
    "minus infinity": Wrong(_with(-np.inf), r"-inf|infinit|not finite|negative"),
    "rank 1": Wrong(lambda a: a[:, 0], r"has shape [(\[]\d+,?[)\]]"),
    "a series": Wrong(lambda a: pd.Series(a[:, 0]), r"has shape [(\[]\d+,?[)\]]"),
    "rank 0": Wrong(lambda a: a.flat[0]),
    "rank 3": Wrong(lambda a: a[None], r"shape [(\[]1, \d+, \d+[)\]]"),
    "no rows": Wrong(lambda a: a[:0]),
    "no columns": Wrong(lambda a: a[:, :0]),
    "text": Wrong(lambda a: a.astype(str), "string|<U"),
    "objects": Wrong(_objects, "object|NoneType"),
    "complex numbers": Wrong(lambda a: a + 1j, "complex128"),
    "a sparse matrix": Wrong(lambda a: sparse.csr_matrix(a), NOT_DENSE),
    "a sparse tensor": Wrong(lambda a: tf.sparse.from_dense(a), NOT_DENSE),
    "a ragged tensor": Wrong(
        lambda a: tf.ragged.constant([[0.0], *a[1:].tolist()] if a.shape[1] > 1 else _ragged(a)),
        "RaggedTensor",
    ),
    "masked entries": Wrong(_masked, "masked entries"),
    "dates": Wrong(lambda a: a.astype("datetime64[s]"), "datetime64"),
    "None": Wrong(lambda a: None, "None"),
    "a ragged list": Wrong(_ragged, "ragged"),
    "a dictionary": Wrong(lambda a: {"a": a}, "dict"),
    "a word": Wrong(lambda a: "an array"),
    "a frame with text": Wrong(_frame_with_text),
    **OTHER_FLOATS,
}
SHORT = {"too few rows": Wrong(lambda a: a[:-1], r"has 12 rows and \w+ has 11|11 rows")}
WIDE = {"twice the columns": Wrong(lambda a: np.concatenate([a, a], axis=1), "columns")}
INTEGERS = {
    "integers": Wrong(lambda a: np.arange(a.size).reshape(a.shape), "int64 and the model float64"),
    "booleans": Wrong(lambda a: a > 0.0, "bool"),
}
WHOLE = _constant(-3, 2.5, float("nan"), "7", [2], True, float("inf"), 1j)
RATE = _constant(0.0, -0.1, float("nan"), float("inf"), "fast", [0.1], 1j, True)

SCORED = ("masked entries", "a sparse matrix", "a ragged tensor", "complex numbers", "text")
PLOTTED = (*SCORED, "rank 1", "objects", "a sparse tensor", "dates", "None", "a ragged list")

WRONG_VALUES: dict[str, dict[str, Wrong]] = {
    "scored": {words: ARRAY[words] for words in SCORED},
    "plotted": {words: ARRAY[words] for words in PLOTTED},
    "inputs": {**ARRAY, **INTEGERS},
    "paired inputs": {**ARRAY, **INTEGERS, **SHORT},
    "inputs of points": {**ARRAY, **INTEGERS, **SHORT, **WIDE},
    "outputs": {**ARRAY, **SHORT, **WIDE},
    "new inputs": {**_without(ARRAY, "no rows", "rank 3"), **INTEGERS, **WIDE},
    "points": {
        **_without(ARRAY, *OTHER_FLOATS),  # cast
        "duplicates": Wrong(lambda a: np.concatenate([a, a[:1]]), "1 duplicate rows: row 4|dupl"),
        "other columns": WIDE["twice the columns"],
    },
    "labels": {
        **ARRAY,
        **SHORT,
        **WIDE,
        "two": Wrong(_with(2.0), "= 2 |0 or 1|labels"),
        "a half": Wrong(_with(0.5), "= 0.5 |0 or 1|labels"),
        "minus one": Wrong(_with(-1.0), "= -1 |0 or 1|labels"),
    },
    "counts": {
        **ARRAY,
        **SHORT,
        **WIDE,
        "minus one": Wrong(_with(-1.0), r"= -1 is outside the support of \w+, which takes counts"),
        "a half": Wrong(_with(0.5), "= 0.5 is outside the support"),
    },
    "classes": {
        "the number of classes": Wrong(_with(3.0), "= 3 is outside .* whole numbers 0 to 2"),
        **WIDE,
    },
    "documents": {
        **_without(ARRAY, "a sparse matrix", "a ragged tensor", *OTHER_FLOATS),
        **{
            words: Wrong(
                ARRAY[words].change, r"must be (a matrix \[documents, words\]|finite)|X has"
            )
            for words in ("rank 3", "objects", "a ragged list", "None")
        },
        "minus one": Wrong(_with(-1.0)),
    },
    "whole number": {**_constant(0), **WHOLE},
    "whole number or 0": WHOLE,
    "rate": RATE,
    "rate or 0": _without(RATE, "0.0"),
    "share": {
        **_without(RATE, "1j"),
        **_constant(1.5, "half"),
        "a boolean of NumPy": Wrong(lambda _: np.True_),
    },
    "word": _constant("no such", 3, ["whitened"], b"x", ("auto",)),
    "kernel": {
        "None": Wrong(lambda _: None, "kernel is a NoneType; pass an instance of gpflow.kernels"),
        "a word": Wrong(lambda _: "Matern52", "kernel"),
        "a class": Wrong(
            lambda _: gpflow.kernels.Matern52,
            r"kernel is the class Matern52 itself; pass an instance, Matern52\(\)",
        ),
        "a number": Wrong(lambda _: 1.0, "kernel"),
        "a function": Wrong(lambda _: lambda a, b: a @ b.T, "kernel"),
        "a column that is not there": Wrong(
            lambda _: gpflow.kernels.Matern52(active_dims=[0, 7]),
            "Matern52 has active_dims up to 7 and the inputs have 2 columns",
        ),
        "a slice of columns": Wrong(
            lambda _: gpflow.kernels.RBF(active_dims=slice(0, 4)),
            "active_dims up to 3 and the inputs have 2 columns",
        ),
        "lengthscales for other columns": Wrong(
            lambda _: (
                gpflow.kernels.Linear() + gpflow.kernels.Matern52(lengthscales=[1.0, 1.0, 1.0])
            ),
            "Matern52 has 3 lengthscales and reads 2 columns .*; pass one number for each column",
        ),
        "variances for other columns": Wrong(
            lambda _: gpflow.kernels.Linear(variance=[1.0, 2.0], active_dims=slice(1, 2)),
            "Linear has 2 variance and reads 1 columns",
        ),
        "other latents": Wrong(
            lambda _: gpflow.kernels.SharedIndependent(gpflow.kernels.Matern52(), 4)
        ),
    },
    "likelihood": {
        "None": Wrong(lambda _: None, "is a NoneType; pass an instance of gpflow.likelihoods"),
        "a word": Wrong(lambda _: "Gaussian", "likelihood"),
        "a class": Wrong(lambda _: gpflow.likelihoods.Gaussian, "likelihood"),
        "a number": Wrong(lambda _: 0.1, "likelihood"),
        "a kernel": Wrong(lambda _: gpflow.kernels.Matern52(), "likelihood"),
    },
    "mean function": {
        "a word": Wrong(lambda _: "zero", "mean"),
        "a number": Wrong(lambda _: 1.0, "mean"),
        "a class": Wrong(lambda _: gpflow.functions.Constant, "mean"),
        "a kernel": Wrong(lambda _: gpflow.kernels.Matern52(), "mean"),
        "other columns": Wrong(lambda _: gpflow.functions.Linear(np.ones((5, 1)), np.zeros(1))),
        "other outputs": Wrong(lambda _: gpflow.functions.Linear(np.ones((2, 3)), np.zeros(3))),
    },
    "model": {
        "None": Wrong(lambda _: None),
        "a word": Wrong(lambda _: "ODVGP"),
        "an array": Wrong(lambda _: np.ones((3, 1))),
        "a class": Wrong(lambda _: gpflow.models.SVGP),
        "a GPR": Wrong(
            lambda _: gpflow.models.GPR(
                (np.ones((3, 2)), np.ones((3, 1))), gpflow.kernels.Matern52()
            ),
            "GPR|Gaussian is not a likelihood of two classes",
        ),
    },
    "pair": {
        words: Wrong(change, r"data is a \w+; pass \(X, Y\), or a tf.data.Dataset of such pairs")
        for words, change in {
            "None": lambda _: None,
            "X alone": lambda pair: pair[0],
            "one array": lambda pair: (pair[0],),
            "three arrays": lambda pair: (*pair, pair[1]),
            "a dictionary": lambda pair: dict(zip("XY", pair)),
            "an iterator": lambda pair: iter([pair]),
            "a word": lambda _: "data",
        }.items()
    }
    | {"swapped": Wrong(lambda pair: (pair[1], pair[0][:-1]))},
    "dataset": {
        "not batched": Wrong(lambda d: d.unbatch(), "not batches: use dataset.batch"),
        "empty": Wrong(lambda d: d.take(0), "The dataset has no batches; check what it is made"),
        "a batch without rows": Wrong(
            lambda d: d.map(lambda x, y: (x[:0], y[:0])), "Batch 1 of the dataset has no rows"
        ),
        "no pair": Wrong(lambda d: d.map(lambda x, y: x), "elements are .*they must be pairs"),
        "dictionaries": Wrong(lambda d: d.map(lambda x, y: {"x": x}), "they must be pairs"),
        "float32": Wrong(
            lambda d: d.map(lambda x, y: (tf.cast(x, tf.float32), y)),
            r"X is float32 and the model float64; use tf.cast\(X, tf.float64\) in dataset.map",
        ),
        "two columns": Wrong(
            lambda d: d.map(lambda x, y: (x, tf.tile(y, [1, 2]))),
            "Y has 2 columns and the model expects 1",
        ),
        "a NaN": Wrong(
            lambda d: d.map(lambda x, y: (x, y * np.nan)), r"Y\[0, 0\] is nan; remove or impute"
        ),
    },
    "object": _constant(3, "no such", [1], {"a": 1}),
    "callable": _constant(3, "no such", [1], None),
}
"""By kind of argument and then in words."""
