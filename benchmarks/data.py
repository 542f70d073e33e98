"""Data of the benchmarks, standardised with training statistics only. Nothing is ever downloaded.

A task is a name and a split. A folder of `NAME.npz` files (`X` [N, D], `Y` [N, 1], `test_mask` bool [N, S])
is given by `--data` or by the environment variable `GPFLOW_DECOUPLED_DATA`; the embedded tasks need none.
"""

from __future__ import annotations

__all__ = ["EMBEDDED", "FOLDER_VARIABLE", "Data", "inducing_points", "load", "raw", "standardise"]

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from gpflow_decoupled.inducing import select

FOLDER_VARIABLE = "GPFLOW_DECOUPLED_DATA"
_TEST_SHARE = 0.1


class Data(NamedTuple):
    """One split of a data set; inputs and real outputs have mean 0 and variance 1 over the training rows."""

    name: str
    X_train: np.ndarray
    """[N, D]"""
    Y_train: np.ndarray
    """[N, 1]; class labels are left as they are"""
    X_test: np.ndarray
    """[N_test, D]"""
    Y_test: np.ndarray
    """[N_test, 1]"""
    num_classes: int = 0
    """C, where the outputs are declared to be labels 0 .. C-1"""

    def cast(self, dtype: str) -> Data:
        """The same data in another floating type."""
        return Data(self.name, *(array.astype(dtype) for array in self[1:5]), self.num_classes)

    def classes(self) -> Data:
        """The same data as labels 0 .. C-1, which their whole numbers are; a class need not be in the training rows."""
        return self._replace(num_classes=1 + int(max(self.Y_train.max(), self.Y_test.max())))


def load(name: str, split: int = 0, folder: str | Path | None = None) -> Data:
    """The standardised train/test split `split` of data set `name`.

    Where there is no `test_mask`, and for the embedded sets, a tenth of the rows drawn with seed `split` is
    the test set. Raises ValueError for an unknown name or split, FileNotFoundError for a missing file.
    """
    if name in EMBEDDED:
        X, Y = EMBEDDED[name]()
        mask = _random_mask(len(X), split)
    else:
        X, Y, mask = _read(name, split, folder)
    return standardise(name, X, Y, mask)


def raw(name: str, folder: str | Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and Y of all rows of data set `name` as they are stored. Raises as `load`."""
    return EMBEDDED[name]() if name in EMBEDDED else _read(name, 0, folder)[:2]


def standardise(name: str, X: np.ndarray, Y: np.ndarray, test: np.ndarray) -> Data:
    """Split rows by the mask `test` [N]; scale all by the mean and deviation of the training rows."""
    Y = Y.reshape(len(X), -1)
    regression = np.issubdtype(Y.dtype, np.floating)
    X_train, X_test = _scale(X[~test], X[test])
    Y_train, Y_test = _scale(Y[~test], Y[test]) if regression else (Y[~test].astype(float), Y[test].astype(float))
    return Data(name, X_train, Y_train, X_test, Y_test)


def inducing_points(data: Data, num: int, seed: int = 0, given: np.ndarray | None = None) -> np.ndarray:
    """[num, D] k-means centres of the training inputs, none of them a row of `given`: the same for every model."""
    X = np.asarray(data.X_train, dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that only a sample of the rows is looked at
        return select(X, num, method="kmeans", given=given, seed=seed)


def _scale(train: np.ndarray, test: np.ndarray) -> tuple:
    mean, deviation = train.mean(0), train.std(0)
    # a column that is constant up to rounding must not be blown up to unit variance
    deviation = np.where(deviation > 1e-10 * np.abs(mean), deviation, 1.0)
    return (train - mean) / deviation, (test - mean) / deviation


def _random_mask(num: int, split: int) -> np.ndarray:
    mask = np.zeros(num, dtype=bool)
    mask[np.random.default_rng(split).permutation(num)[: max(1, round(_TEST_SHARE * num))]] = True
    return mask


def _read(name: str, split: int, folder: str | Path | None) -> tuple:
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    embedded = ", ".join(sorted(EMBEDDED))
    hint = f"give a folder of NAME.npz files by --data or {FOLDER_VARIABLE}, or use {embedded}."
    if not folder:
        raise ValueError(f"Data set {name!r} is not embedded: {hint}")
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"No file {path.name} in the data folder: {hint}")
    with np.load(path, allow_pickle=False) as file:
        X, Y = file["X"], file["Y"]
        if "test_mask" not in file:
            return X, Y, _random_mask(len(X), split)
        masks = file["test_mask"]
    if not 0 <= split < masks.shape[1]:
        raise ValueError(f"{name} has splits 0 to {masks.shape[1] - 1}; split={split} does not exist.")
    return X, Y, masks[:, split]


def _synthetic(num: int = 3000) -> tuple:
    """A smooth function of two inputs with ripples and noise: more mean points help, as on the large sets."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, [num, 2])
    ripples = np.sin(12.0 * X[:, :1]) * np.cos(9.0 * X[:, 1:]) + 0.5 * np.sin(25.0 * X.sum(1, keepdims=True))
    return X, X[:, :1] ** 2 + ripples + 0.1 * rng.standard_normal([num, 1])


EMBEDDED = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "breast_cancer_sklearn": lambda: load_breast_cancer(return_X_y=True),
    "synthetic": _synthetic,
}
"""Tasks that need no folder: name -> function that gives X [N, D] and Y."""
