"""Problems of the linear suite: data on disk, read in blocks or at once, and the prior of each."""

from __future__ import annotations

__all__ = ["DEFAULTS", "TASKS", "Logistic", "Problem", "generate", "store"]

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_decoupled.models import CVIGLM

from ...harness.data import raw

_GENERATE = 20_000
"""Rows that are drawn at a time."""

TASKS = {
    "a7a": 5.0,
    "colon_cancer": 596.36,
    "breast_cancer_sklearn": 1.0,
    "generated": 0.002,
    "generated_wide": 1.0,
}
"""Task -> prior precision of the weights, that of Khan & Lin (2017) where they have the data set;
the generated one is like their covtype."""
DEFAULTS = {
    True: ["a7a", "colon_cancer", "generated"],
    False: ["breast_cancer_sklearn", "generated_wide", "generated"],
}
"""Whether there is a folder of data -> tasks."""


class Logistic(gpflow.likelihoods.Bernoulli):
    """The logistic likelihood, finite at every f: GPflow's log(1 - sigmoid(f)) is infinite for f
    above 37.
    """

    def __init__(self) -> None:
        super().__init__(invlink=tf.sigmoid)

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.nn.softplus((1.0 - 2.0 * Y) * F)


class Problem(NamedTuple):
    """Logistic regression on rows of float64 in two files, with an intercept of prior precision
    1e-4.
    """

    name: str
    folder: str
    num_data: int
    num_columns: int

    @property
    def precision(self) -> float:
        """The prior precision of the weights."""
        return TASKS[self.name]

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """X [B, p] and Y [B, 1] of some rows, read from the disk."""
        stop, columns = min(stop, self.num_data), self.num_columns
        X, Y = (
            np.fromfile(
                Path(self.folder) / f"{self.name}.{part}",
                count=(stop - start) * size,
                offset=8 * start * size,
            )
            for part, size in (("X", columns), ("Y", 1))
        )
        return X.reshape(-1, columns), Y[:, None]

    def blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All rows, `size` at a time."""
        return (self.rows(start, start + size) for start in range(0, self.num_data, size))

    def model(self, first: int | None = None) -> gpflow.models.GPModel:
        """The model that `CVIGLM` makes of the `first` rows, or of all; every method starts from
        its q.
        """
        deviation = np.full(self.num_columns, self.precision**-0.5)
        prior = tfp.distributions.MultivariateNormalDiag(np.zeros(self.num_columns), deviation)
        data = self.rows(0, first or self.num_data)
        return CVIGLM(data, Logistic(), prior=prior, num_data=self.num_data)


def store(name: str, folder: Path, data: str | None, rows: int, columns: int, seed: int) -> Problem:
    """Write a task to files in `folder`; a generated one in blocks, so that no process has all of
    it in memory.

    :param data: folder of NAME.npz files, for tasks that are not embedded.
    :param rows: of the generated task; the wide one has five times as many columns as rows.
    """
    if name.startswith("generated"):
        shape = (
            (rows, columns)
            if name == "generated"
            else (max(10, rows // 5000), 5 * max(10, rows // 5000))
        )
        blocks = generate(*shape, seed)
    else:
        X, Y = raw(name, data)
        if not np.all(np.isin(X, (0.0, 1.0))):
            X = (X - X.mean(0)) / X.std(0)
        shape, blocks = X.shape, iter([(X, np.reshape(Y, [-1, 1]))])
    with (folder / f"{name}.X").open("wb") as inputs, (folder / f"{name}.Y").open("wb") as outputs:
        for X, Y in blocks:
            np.ascontiguousarray(X, float).tofile(inputs)
            np.ascontiguousarray(Y, float).tofile(outputs)
    return Problem(name, str(folder), *map(int, shape))


def generate(rows: int, columns: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels of a logistic model on inputs like those of covtype: ten numbers, then one of several
    categories.

    Categories are as unequal as 1, 1/2, 1/3, ...; all columns beyond ten are their indicators.
    """
    rng = np.random.default_rng(seed)
    numbers = min(10, columns)
    mixing = np.linalg.qr(rng.normal(size=(numbers, numbers)))[0] * np.geomspace(0.3, 1.5, numbers)
    weights = rng.normal(size=columns) / np.sqrt(numbers)
    shares = 1.0 / np.arange(1, columns - numbers + 1)
    for start in range(0, rows, _GENERATE):
        size = min(_GENERATE, rows - start)
        X = np.zeros((size, columns))
        X[:, :numbers] = rng.normal(size=(size, numbers)) @ mixing
        if columns > numbers:
            X[np.arange(size), numbers + rng.choice(len(shares), size, p=shares / shares.sum())] = (
                1.0
            )
        yield (
            X,
            (rng.uniform(size=(size, 1)) < 1.0 / (1.0 + np.exp(-X @ weights[:, None]))).astype(
                float
            ),
        )
