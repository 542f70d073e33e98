"""Data of the benchmarks, standardised with training statistics only. Nothing is ever downloaded.

A task is the name of a data set, with the number of a split. The option `--data` or the environment
variable `GPFLOW_DECOUPLED_DATA` names a folder of `NAME.npz` files with arrays `X` [N, D], `Y`
[N, 1] and, for S fixed splits, `test_mask` bool [N, S]. The embedded tasks need no folder."""

from __future__ import annotations

__all__ = [
    "EMBEDDED",
    "FOLDER_VARIABLE",
    "Data",
    "existing_splits",
    "inducing_points",
    "load",
    "raw",
    "standardise",
]

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from gpflow_decoupled.inducing import select

FOLDER_VARIABLE = "GPFLOW_DECOUPLED_DATA"
_TEST_SHARE = 0.1


class Data(NamedTuple):
    """One split of a data set; inputs and real outputs have mean 0 and variance 1 over the training
    rows.
    """

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
    """C, where the outputs are declared to be labels 0 to C-1; else 0"""
    has_integers: bool = False
    """whether the outputs are stored as integers, which are not standardised"""

    def cast(self, dtype: str) -> Data:
        """The same data in another floating type."""
        return Data(self.name, *(array.astype(dtype) for array in self[1:5]), *self[5:])

    def classes(self) -> Data:
        """The same data with outputs declared to be labels 0 to C-1. A class may be missing from
        the training rows.
        """
        return self._replace(num_classes=1 + int(max(self.Y_train.max(), self.Y_test.max())))


def load(name: str, split: int = 0, folder: str | Path | None = None) -> Data:
    """A data set, split into training and test rows and standardised.

    :param name: of an embedded task or of a file.
    :param split: column of `test_mask`. Without that array, and for the embedded tasks, it is the
        seed by which a tenth of the rows are drawn as the test set.
    :param folder: of NAME.npz files; default: the environment variable.
    :raises ValueError: for an unknown name or split.
    :raises FileNotFoundError: if the folder has no such file.
    """
    if name in EMBEDDED:
        X, Y = EMBEDDED[name]()
        mask = _random_mask(len(X), split)
    else:
        X, Y, mask = _read(name, split, folder)
    return standardise(name, X, Y, mask)


def existing_splits(
    name: str, splits: Sequence[int], folder: str | Path | None = None
) -> list[int]:
    """Those of some splits that a data set has; all of them where it has none, so that `load` says
    which there are.

    :param name: of an embedded task or of a file; sets without `test_mask` have every split.
    """
    path = Path(folder or os.environ.get(FOLDER_VARIABLE) or ".") / f"{name}.npz"
    if name in EMBEDDED or not path.is_file():
        return list(splits)
    with np.load(path, allow_pickle=False) as file:
        count = file["test_mask"].shape[1] if "test_mask" in file else None
    return [split for split in splits if count is None or split < count] or list(splits)


def raw(name: str, folder: str | Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and Y of all rows as they are stored; arguments and errors are those of `load`."""
    return EMBEDDED[name]() if name in EMBEDDED else _read(name, 0, folder)[:2]


def standardise(name: str, X: np.ndarray, Y: np.ndarray, test: np.ndarray) -> Data:
    """Split rows by the mask `test` [N], and scale them by mean and standard deviation of the
    training rows alone.
    """
    Y = Y.reshape(len(X), -1)
    regression = np.issubdtype(Y.dtype, np.floating)
    X_train, X_test = _scale(X[~test], X[test])
    Y_train, Y_test = (
        _scale(Y[~test], Y[test]) if regression else (Y[~test].astype(float), Y[test].astype(float))
    )
    return Data(name, X_train, Y_train, X_test, Y_test, has_integers=not regression)


def inducing_points(
    data: Data, num: int, seed: int = 0, given: np.ndarray | None = None
) -> np.ndarray:
    """k-means centres of the training inputs, [num, D]; the same for every model.

    :param given: points [M, D] that are there already; none of them is chosen again.
    """
    X = np.asarray(data.X_train, dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # large data sets warn that k-means sees a sample of the rows
        return select(X, num, method="kmeans", given=given, seed=seed)


def _scale(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = train.mean(0), train.std(0)
    # a column that is constant up to rounding must not be blown up to unit variance
    deviation = np.where(deviation > 1e-10 * np.abs(mean), deviation, 1.0)
    return (train - mean) / deviation, (test - mean) / deviation


def _random_mask(num: int, split: int) -> np.ndarray:
    mask = np.zeros(num, dtype=bool)
    mask[np.random.default_rng(split).permutation(num)[: max(1, round(_TEST_SHARE * num))]] = True
    return mask


def _read(
    name: str, split: int, folder: str | Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    embedded = ", ".join(sorted(EMBEDDED))
    hint = f"give a folder of NAME.npz files by --data or {FOLDER_VARIABLE}, or use {embedded}."
    if not folder:
        raise ValueError(f"Data set {name!r} is not embedded: {hint}")
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"The data folder has no file {path.name}: {hint}")
    with np.load(path, allow_pickle=False) as file:
        X, Y = file["X"], file["Y"]
        if "test_mask" not in file:
            return X, Y, _random_mask(len(X), split)
        masks = file["test_mask"]
    if not 0 <= split < masks.shape[1]:
        raise ValueError(
            f"Data set {name!r} has splits 0 to {masks.shape[1] - 1}; split={split} does not exist."
        )
    return X, Y, masks[:, split]


def _synthetic(num: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of two inputs with ripples and noise, on which more mean points help, as on
    the large data sets.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, [num, 2])
    ripples = np.sin(12.0 * X[:, :1]) * np.cos(9.0 * X[:, 1:]) + 0.5 * np.sin(
        25.0 * X.sum(1, keepdims=True)
    )
    return X, X[:, :1] ** 2 + ripples + 0.1 * rng.standard_normal([num, 1])


EMBEDDED = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "breast_cancer_sklearn": lambda: load_breast_cancer(return_X_y=True),
    "synthetic": _synthetic,
}
"""Tasks that need no folder: name -> function that returns X [N, D] and Y."""
