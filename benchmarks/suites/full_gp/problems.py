"""Two classes of a data set as a problem with fixed hyperparameters."""

from __future__ import annotations

__all__ = ["TASKS", "Problem", "Task", "make_problem"]

from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.likelihoods import BernoulliLogit

from ...harness.data import raw


class Task(NamedTuple):
    """Two classes of a data set, the scale of its inputs, and the lengthscale of the kernel."""

    source: str
    lengthscale: float
    classes: tuple[int, int] = (0, 1)
    unit: float | None = None
    """inputs are divided by it; None: each column is standardised"""
    most: int | None = None
    """rows that are taken where no number is asked for; None: all"""


TASKS = {
    "digits35": Task("digits", 2.0, (3, 5), 16.0),
    "cancer": Task("breast_cancer_sklearn", float(np.sqrt(30.0))),
    "usps35": Task("usps", float(np.exp(2.5)), (3, 5), 1.0),
    "usps35-paper": Task("usps", float(np.exp(-1.0)), (3, 5), 1.0),
    "mnist35": Task("mnist5k", 6.0, (3, 5), 255.0),
    "covertype12": Task("covertype15k", float(np.sqrt(54.0)), (0, 1), most=1500),
}
"""The first two are embedded. The lengthscale of usps35 is that of the authors' demo; e^-1, which
the paper prints, makes the kernel matrix of raw pixels diagonal."""
_TEST_SHARE = 0.1


class Problem(NamedTuple):
    """All rows of a task, which are timed, and a split of them for the held-out log loss."""

    name: str
    X: np.ndarray
    """[N, D]"""
    Y: np.ndarray
    """[N, 1], 0 or 1"""
    test: np.ndarray
    """[N], bool"""
    lengthscale: float
    variance: float
    exact: bool
    """whether expectations of the logit are exact at every variance, or by GPflow's 20-point
    quadrature
    """

    def kernel(self) -> gpflow.kernels.Kernel:
        """A kernel of its own for each fit."""
        return gpflow.kernels.SquaredExponential(self.variance, self.lengthscale)

    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """Bernoulli with the logistic link."""
        return BernoulliLogit() if self.exact else gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)

    def training(self) -> Problem:
        """The problem of the training rows alone."""
        return self._replace(X=self.X[~self.test], Y=self.Y[~self.test])


def make_problem(
    name: str,
    num_data: int | None,
    folder: str | Path | None,
    *,
    variance: float,
    lengthscale: float | None = None,
    exact: bool = False,
    seed: int = 0,
) -> Problem:
    """The rows of a task's two classes, at most `num_data` of them; a tenth of them is the held-out
    set.

    :param name: one of TASKS.
    :param folder: of NAME.npz files.
    :param lengthscale: None takes that of the task.
    """
    task = TASKS[name]
    X, Y = raw(task.source, folder)
    Y = Y.reshape(-1)
    generator = np.random.default_rng(seed)
    rows = generator.permutation(np.flatnonzero(np.isin(Y, task.classes)))[: num_data or task.most]
    X, Y = np.asarray(X[rows], float), (Y[rows] == task.classes[1]).astype(float)[:, None]
    X = X[:, np.ptp(X, axis=0) > 0.0]  # without pixels that are always empty
    X = (X - X.mean(0)) / X.std(0) if task.unit is None else X / task.unit
    test = np.arange(len(X)) < round(_TEST_SHARE * len(X))
    return Problem(name, X, Y, test, lengthscale or task.lengthscale, variance, exact)
