"""Our neighbours beside the exact GP on the same few thousand rows of a public set.

    python -m benchmarks.exact --tasks kin8nm protein --rows 4000 --evaluations 25 --data DIR

Neighbours are trained by `fit` without options. The exact GP is GPflow's `GPR`, whose evidence
L-BFGS climbs from the neighbours' kernel and noise: what it gains there is the price of the
neighbours' hyperparameters. An evaluation, with the gradient, costs N^3 operations and some ten
matrices [N, N] of memory. Prints rows of a table."""

from __future__ import annotations

__all__ = ["Compared", "compare", "exact_gp", "lines", "nearest"]

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
import scipy.linalg
import tensorflow as tf

from gpflow_decoupled import fit
from gpflow_decoupled.building import default_kernel
from gpflow_decoupled.models import NNGP

from .harness.data import Data, load
from .harness.metrics import gaussian_scores

_TEST_ROWS = 1000
_NOISE = 0.1
"""The first noise variance, that of `build`."""
_SHARES = (5, 95)
"""Percentiles of the ratios of standard deviations."""


class Compared(NamedTuple):
    """A trained model: its hyperparameters, and its predictions of the test rows."""

    name: str
    lengthscales: np.ndarray
    kernel_variance: float
    noise: float
    evidence: float
    """of all rows, exact, at these hyperparameters, in nats per row"""
    mean: np.ndarray
    variance: np.ndarray
    seconds: float
    evaluations: int = 0


def nearest(data: Data, kernel: gpflow.kernels.Stationary, noise: float, seed: int = 0) -> NNGP:
    """A nearest-neighbour GP with the sizes of `build`."""
    return NNGP(
        (data.X_train, data.Y_train),
        kernel,
        gpflow.likelihoods.Gaussian(noise),
        num_neighbours=30,
        prediction_neighbours=256,
        seed=seed,
    )


def exact_gp(data: Data, model: NNGP) -> gpflow.models.GPR:
    """The exact GP with the kernel and the noise of `model`, copied."""
    kernel = gpflow.utilities.deepcopy(model.kernel)
    noise = float(np.asarray(model.likelihood.variance))
    return gpflow.models.GPR((data.X_train, data.Y_train), kernel, noise_variance=noise)


def compare(data: Data, evaluations: int, seed: int = 0) -> list[Compared]:
    """Neighbours, the exact GP, and neighbours with the hyperparameters of the exact GP.

    :param evaluations: the most of the evidence by L-BFGS.
    """
    start = time.process_time()
    model = nearest(data, default_kernel(data.X_train.shape[1]), _NOISE, seed)
    fit(model, progress=False, seed=seed)
    seconds = time.process_time() - start
    reference = exact_gp(data, model)
    before = _evidence(reference, data)
    neighbours = _compared("neighbours", model, before, data, seconds)
    start = time.process_time()
    found = gpflow.optimizers.Scipy().minimize(
        lambda: -_log_density(_covariance(reference, data), data.Y_train),
        reference.trainable_variables,
        compile=False,
        options={"maxfun": evaluations, "maxiter": evaluations},
    )
    seconds, after = time.process_time() - start, _evidence(reference, data)
    exact = _compared("exact", reference, after, data, seconds, found.nfev)
    noise = float(reference.likelihood.variance.numpy())
    same = nearest(data, gpflow.utilities.deepcopy(reference.kernel), noise, seed)
    return [exact, neighbours, _compared("exact hyperparameters", same, after, data, 0.0)]


def _covariance(reference: gpflow.models.GPR, data: Data) -> tf.Tensor:
    K = reference.kernel(data.X_train)
    return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + reference.likelihood.variance)


def _log_density(covariance: tf.Tensor, Y: np.ndarray) -> tf.Tensor:
    """log N(Y | 0, K). Its gradient (a a^T - K^-1) / 2, with a = K^-1 y, takes the inverse from
    LAPACK, which is several times faster than TensorFlow's gradient of a Cholesky factor.
    """

    @tf.custom_gradient
    def value(K: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        factor = scipy.linalg.cholesky(K.numpy(), lower=True)
        a = scipy.linalg.cho_solve((factor, True), Y)
        log_determinant = 2.0 * np.sum(np.log(np.diag(factor)))
        density = -0.5 * (np.sum(Y * a) + log_determinant + len(Y) * np.log(2.0 * np.pi))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=True)
            inverse = np.tril(inverse) + np.tril(inverse, -1).T
            return upstream * (0.5 * (a @ a.T - inverse))

        return tf.constant(density, K.dtype), gradient

    return value(covariance)


def _evidence(reference: gpflow.models.GPR, data: Data) -> float:
    """The log evidence in nats per row."""
    return float(_log_density(_covariance(reference, data), data.Y_train)) / len(data.X_train)


def _compared(
    name: str,
    model: gpflow.models.GPModel,
    evidence: float,
    data: Data,
    seconds: float,
    evaluations: int = 0,
) -> Compared:
    mean, variance = map(np.asarray, model.predict_y(data.X_test))
    kernel, noise = model.kernel, float(np.asarray(model.likelihood.variance))
    sizes = np.asarray(kernel.lengthscales), float(np.asarray(kernel.variance))
    return Compared(name, *sizes, noise, evidence, mean, variance, seconds, evaluations)


def lines(task: str, compared: list[Compared], data: Data) -> list[str]:
    """A row of a table for each model; ratios and differences are to the first."""
    first = compared[0]
    rows = []
    for one in compared:
        scores = gaussian_scores(one.mean, one.variance, data.Y_test)
        scales = one.lengthscales / first.lengthscales
        spread = np.percentile(np.sqrt(one.variance / first.variance), _SHARES)
        apart = np.sqrt(np.mean(np.square(one.mean - first.mean) / first.variance))
        cells = [
            f"{task}, {len(data.X_train):,}",
            one.name,
            f"{scales.min():.2f} to {scales.max():.2f}",
            f"{one.kernel_variance:.2f}",
            f"{one.noise:.4f}",
            f"{one.evidence:.4f}",
            f"{scores['rmse']:.3f} / {scores['log_density']:.3f} ({scores['coverage']:.3f})",
            f"{apart:.2f}",
            f"{spread[0]:.2f} to {spread[1]:.2f}",
            f"{one.seconds:.0f}" + (f" ({one.evaluations})" if one.evaluations else ""),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def some_rows(data: Data, rows: int, seed: int = 0) -> Data:
    """Random training and test rows."""
    rng = np.random.default_rng(seed)
    train = rng.permutation(len(data.X_train))[:rows]
    test = rng.permutation(len(data.X_test))[:_TEST_ROWS]
    X, Y = data.X_train[train], data.Y_train[train]
    return data._replace(X_train=X, Y_train=Y, X_test=data.X_test[test], Y_test=data.Y_test[test])


def main() -> None:
    """Compare on the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    for task in options.tasks:
        data = some_rows(load(task, 0, options.data), options.rows)
        for line in lines(task, compare(data, options.evaluations), data):
            print(line, flush=True)


if __name__ == "__main__":
    main()
