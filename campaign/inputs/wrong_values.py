"""What can be wrong with a value of each kind: a function of the right value, or a wrong one."""

from __future__ import annotations

__all__ = ["WRONG_VALUES"]

from collections.abc import Callable

import gpflow
import numpy as np
import pandas as pd
from scipy import sparse

Change = Callable[[np.ndarray], object]


def _with(value: float) -> Change:
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


ARRAY: dict[str, Change] = {
    "a NaN": _with(np.nan),
    "an infinity": _with(np.inf),
    "minus infinity": _with(-np.inf),
    "rank 1": lambda a: a[:, 0],
    "rank 0": lambda a: a.flat[0],
    "rank 3": lambda a: a[None],
    "no rows": lambda a: a[:0],
    "no columns": lambda a: a[:, :0],
    "text": lambda a: a.astype(str),
    "objects": _objects,
    "complex numbers": lambda a: a + 1j,
    "a sparse matrix": lambda a: sparse.csr_matrix(a),
    "masked entries": _masked,
    "dates": lambda a: a.astype("datetime64[s]"),
    "None": lambda a: None,
    "a ragged list": _ragged,
    "a dictionary": lambda a: {"a": a},
    "a word": lambda a: "data",
    "a frame with text": _frame_with_text,
    "float32": lambda a: a.astype(np.float32),
    "extended precision": lambda a: a.astype(np.longdouble),
}
ROWS = {
    "too few rows": lambda a: a[:-1],
    "twice the columns": lambda a: np.concatenate([a, a], axis=1),
}

WRONG_VALUES: dict[str, dict[str, Change]] = {
    "inputs": {**ARRAY, "integers": lambda a: a.astype(int), "booleans": lambda a: a > 0},
    "paired inputs": {**ARRAY, "too few rows": ROWS["too few rows"]},
    "outputs": {**ARRAY, **ROWS},
    "new inputs": {
        **{k: v for k, v in ARRAY.items() if k not in ("no rows", "rank 3")},
        "twice the columns": ROWS["twice the columns"],
    },
    "points": {
        **{
            words: change
            for words, change in ARRAY.items()
            if words not in ("float32", "extended precision")
        },  # cast
        "duplicates": lambda a: np.concatenate([a, a[:1]]),
        "other columns": ROWS["twice the columns"],
    },
    "labels": {**ARRAY, **ROWS, "two": _with(2.0), "a half": _with(0.5), "minus one": _with(-1.0)},
    "counts": {**ARRAY, **ROWS, "minus one": _with(-1.0), "a half": _with(0.5)},
    "documents": {
        **{
            k: v
            for k, v in ARRAY.items()
            if k not in ("a sparse matrix", "float32", "extended precision")
        },
        "minus one": _with(-1.0),
    },
    "whole number": {
        str(bad): lambda _, bad=bad: bad
        for bad in (0, -3, 2.5, float("nan"), "7", [2], True, float("inf"), 1j)
    },
    "rate": {
        str(bad): lambda _, bad=bad: bad
        for bad in (0.0, -0.1, float("nan"), float("inf"), "fast", [0.1], 1j)
    },
    "share": {
        str(bad): lambda _, bad=bad: bad
        for bad in (0.0, -0.1, 1.5, float("nan"), float("inf"), "half", [0.1])
    },
    "word": {
        str(bad): lambda _, bad=bad: bad for bad in ("no such", 3, ["whitened"], b"x", ("auto",))
    },
    "kernel": {
        "None": lambda _: None,
        "a word": lambda _: "Matern52",
        "a class": lambda _: gpflow.kernels.Matern52,
        "a number": lambda _: 1.0,
        "a function": lambda _: lambda a, b: a @ b.T,
        "a column that is not there": lambda _: gpflow.kernels.Matern52(active_dims=[7]),
        "lengthscales for other columns": lambda _: gpflow.kernels.Matern52(
            lengthscales=[1.0, 1.0, 1.0]
        ),
        "other latents": lambda _: gpflow.kernels.SharedIndependent(gpflow.kernels.Matern52(), 4),
    },
    "likelihood": {
        "None": lambda _: None,
        "a word": lambda _: "Gaussian",
        "a class": lambda _: gpflow.likelihoods.Gaussian,
        "a number": lambda _: 0.1,
        "a kernel": lambda _: gpflow.kernels.Matern52(),
    },
    "mean function": {
        "a word": lambda _: "zero",
        "a number": lambda _: 1.0,
        "a class": lambda _: gpflow.functions.Constant,
        "a kernel": lambda _: gpflow.kernels.Matern52(),
        "other columns": lambda _: gpflow.functions.Linear(np.ones((5, 1)), np.zeros(1)),
        "other outputs": lambda _: gpflow.functions.Linear(np.ones((2, 3)), np.zeros(3)),
    },
    "model": {
        "None": lambda _: None,
        "a word": lambda _: "ODVGP",
        "an array": lambda _: np.ones((3, 1)),
        "a class": lambda _: gpflow.models.SVGP,
        "a GPR": lambda _: gpflow.models.GPR(
            (np.ones((3, 2)), np.ones((3, 1))), gpflow.kernels.Matern52()
        ),
    },
    "pair": {
        "None": lambda _: None,
        "X alone": lambda pair: pair[0],
        "three arrays": lambda pair: (*pair, pair[1]),
        "a dictionary": lambda pair: dict(zip("XY", pair)),
        "an iterator": lambda pair: iter([pair]),
        "a word": lambda _: "data",
        "swapped": lambda pair: (pair[1], pair[0][:-1]),
    },
    "object": {str(bad): lambda _, bad=bad: bad for bad in (3, "no such", [1], {"a": 1})},
    "callable": {str(bad): lambda _, bad=bad: bad for bad in (3, "no such", [1], None)},
}
"""By kind of argument and then in words: the wrong value, as a function of a right one."""
