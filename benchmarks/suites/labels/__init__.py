"""Labels with hyperparameters learned: seconds, the bound, and the held-out log loss.

Ours by L-BFGS on the bound at the best q, GPflow's `VGP` by its `Scipy`, and scikit-learn's
classifier (Laplace) on its own evidence. Matern 5/2 with a lengthscale per column and the logistic
link, for all.
"""

from __future__ import annotations

__all__ = ["METHODS", "SUITE"]

import argparse
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

import gpflow_decoupled as gd
from gpflow_decoupled.likelihoods import BernoulliLogit

from ...harness.data import raw
from ...harness.machine import clock
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite

COLUMNS = 8
"""The first of a task. Rows that are not learned from are the test."""


class Trained(NamedTuple):
    """A trained classifier."""

    predict: Callable[[np.ndarray], np.ndarray]
    """X [N, D] -> probabilities of one, [N]"""
    bound: float | None
    """nats; None where the objective is no bound"""


class Learned(NamedTuple):
    """One method on so many labels."""

    num_data: int
    method: str
    seconds: float
    """of training, compilation included"""
    bound: float | None
    log_loss: float
    """mean of the test rows, nats"""


def _kernel(X: np.ndarray) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))


def _of(model: gpflow.models.GPModel, bound: float) -> Trained:
    return Trained(lambda new: np.asarray(model.predict_y(new)[0])[:, 0], bound)


def _build(X: np.ndarray, Y: np.ndarray) -> Trained:
    """What a user writes: no option is given."""
    model = gd.build(X, Y, "bernoulli", verbose=False)
    gd.fit(model, progress=False)
    return _of(model, float(model.elbo()))


def _ours(
    kind: type[gd.models.LCLGP] | type[gd.models.AffineIndependentGP],
) -> Callable[[np.ndarray, np.ndarray], Trained]:
    def train(X: np.ndarray, Y: np.ndarray) -> Trained:
        model = kind((X, Y), _kernel(X), BernoulliLogit())
        return _of(model, gd.fit(model, optimizer="lbfgs", progress=False).elbo)

    return train


def _vgp(X: np.ndarray, Y: np.ndarray) -> Trained:
    """GPflow's, q and hyperparameters by L-BFGS together, its limit 300 iterations."""
    model = gpflow.models.VGP((X, Y), _kernel(X), BernoulliLogit())
    options = {"maxiter": 300}
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options=options
    )
    return _of(model, float(model.elbo()))


def _scikit_learn(X: np.ndarray, Y: np.ndarray) -> Trained:
    kernel = ConstantKernel() * Matern(np.full(X.shape[1], np.sqrt(X.shape[1])), nu=2.5)
    model = GaussianProcessClassifier(kernel).fit(X, Y[:, 0])
    return Trained(lambda new: model.predict_proba(new)[:, 1], None)


METHODS = {
    "build": _build,
    "LCLGP": _ours(gd.models.LCLGP),
    "AffineIndependentGP": _ours(gd.models.AffineIndependentGP),
    "GPflow VGP, Scipy": _vgp,
    "scikit-learn": _scikit_learn,
}


def _pieces(options: argparse.Namespace) -> list[tuple[int, str]]:
    return [(size, name) for size in options.sizes for name in options.methods]


def _measure(options: argparse.Namespace, num_data: int, method: str) -> list[Learned]:
    return [in_a_process(_row, num_data, method, options.task, options.data, options.seed)]


def _row(num_data: int, method: str, task: str, data: str | None, seed: int) -> Learned:
    X, Y = raw(task, data)
    X = X[:, :COLUMNS]
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:num_data], order[num_data:]
    X = (X - X[train].mean(0)) / X[train].std(0)
    Y = (np.asarray(Y).reshape(-1, 1) > np.min(Y)).astype(np.float64)
    start = clock()
    trained = METHODS[method](X[train], Y[train])
    seconds = clock() - start
    p = np.clip(trained.predict(X[test]), 1e-6, 1.0 - 1e-6)
    loss = -np.mean(np.where(Y[test, 0] > 0.5, np.log(p), np.log1p(-p)))
    return Learned(num_data, method, seconds, trained.bound, float(loss))


def _section(rows: list[Learned], options: argparse.Namespace) -> Section:
    header = ["labels", "method", "training, s", "bound, nats", "held-out log loss"]
    cells = [
        [
            f"{row.num_data:,}",
            row.method,
            f"{row.seconds:.1f}",
            "" if row.bound is None else f"{row.bound:.3f}",
            f"{row.log_loss:.4f}",
        ]
        for row in rows
    ]
    return Section([Table(f"{options.task}, hyperparameters learned", header, cells)], [], NOTES)


NOTES = [
    "Matern 5/2, a lengthscale for each of eight columns, logistic link, for all.",
    "Seconds of the processor, compilation included.",
    "scikit-learn maximises Laplace's evidence, which is no bound.",
]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="breast_cancer_sklearn", help="two classes")
    parser.add_argument("--sizes", nargs="+", type=int, default=[500])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))


SUITE = Suite(
    "Labels, with hyperparameters learned",
    {"labels": Part(Learned, _pieces, _measure, _section)},
    _add_arguments,
    selecting=("sizes", "methods"),
)
