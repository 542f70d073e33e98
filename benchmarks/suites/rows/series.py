"""One input: exact posteriors of series by filter and smoother, beside dense and local ones."""

from __future__ import annotations

__all__ = ["PART", "SeriesRow"]

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd

from ...harness.machine import clock
from ...harness.measuring import peak_megabytes
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part

MOST_DENSE = 2000
"""Rows up to which the models run that store the kernel matrix."""
NOISE = 0.3
NOTES = [
    "Generated rows: f = sin t + sin(3.1 t) / 2 at N unequally spaced inputs on [0, N / 10];"
    " Gaussian noise of deviation 0.3, or labels, or counts, with f the logit or the logarithm.",
    "An evaluation is the objective of training with its gradient: the log evidence, or the bound"
    " at fixed sites; the second one of a process, compiled before.",
    'Training is `fit(model)`, for a `CVIGP` with `optimizer="lbfgs"`, from a Matern52 of'
    " lengthscale 1 and unit noise, compilation included.",
    "Log density: 1,000 other inputs among and up to 1 behind the rows.",
]
LIKELIHOODS: dict[str, Callable[[], gpflow.likelihoods.Likelihood]] = {
    "gaussian": gpflow.likelihoods.Gaussian,
    "bernoulli": gd.likelihoods.BernoulliLogit,
    "poisson": gpflow.likelihoods.Poisson,
}


class SeriesRow(NamedTuple):
    """One model of one series."""

    num_data: int
    likelihood: str
    model: str
    evaluation: float
    """seconds"""
    training: float
    """seconds, compilation included"""
    predicting: float
    """seconds of 1,000 predictions"""
    objective: float
    """log evidence or bound after training, nats per row; NaN for neighbours"""
    log_density: float
    """mean of the test rows, nats"""
    megabytes: float
    """peak of the process"""


def generate(
    num_data: int, span: float, likelihood: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A series t [N, 1] on [0, span], y [N, 1], in random order."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, span, (num_data, 1))
    f = np.sin(t) + 0.5 * np.sin(3.1 * t)
    if likelihood == "gaussian":
        return t, f + NOISE * rng.standard_normal(f.shape)
    if likelihood == "bernoulli":
        return t, (rng.uniform(size=f.shape) < 1.0 / (1.0 + np.exp(-2.0 * f))).astype(float)
    return t, rng.poisson(np.exp(f)).astype(float)


def _made(name: str, data: tuple[np.ndarray, np.ndarray], likelihood: str) -> Any:
    kernel, noise = gpflow.kernels.Matern52(), LIKELIHOODS[likelihood]()
    if name == "StateSpaceGP":
        return gd.models.StateSpaceGP(data, kernel, noise)
    if name == "CVIGP":
        return gd.models.CVIGP(data, kernel, noise)
    if name == "NNGP":
        return gd.models.NNGP(data, kernel, noise, num_neighbours=30)
    return gpflow.models.GPR(data, kernel)


def _evaluation(model: Any) -> float:
    """Seconds of the objective and its gradient, compiled."""
    chain = isinstance(model, gd.models.StateSpaceGP)
    exact = chain and isinstance(model.likelihood, gpflow.likelihoods.Gaussian)
    objective = model.log_evidence if exact else model.maximum_log_likelihood_objective

    @tf.function(autograph=False)
    def evaluate() -> Any:
        with tf.GradientTape() as tape:
            value = objective()
        return value, tape.gradient(value, model.trainable_variables)

    evaluate()
    start = clock()
    evaluate()
    return clock() - start


def _train(model: Any) -> None:
    if isinstance(model, gpflow.models.GPR):
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    else:
        dense = type(model) is gd.models.CVIGP
        gd.fit(model, progress=False, **({"optimizer": "lbfgs"} if dense else {}))


def _row(num_data: int, likelihood: str, name: str, seed: int) -> SeriesRow:
    span = num_data / 10.0
    model = _made(name, generate(num_data, span, likelihood, seed), likelihood)
    new = generate(1000, span + 1.0, likelihood, seed + 1)
    local = name == "NNGP"
    start = clock()
    _train(model)
    trained = clock()
    model.predict_y(new[0])
    predicted = clock()
    objective = np.nan if local else float(model.maximum_log_likelihood_objective())
    density = float(np.mean(model.predict_log_density(new)))
    return SeriesRow(
        num_data,
        likelihood,
        name,
        np.nan if local else _evaluation(model),
        trained - start,
        predicted - trained,
        objective / num_data,
        density,
        peak_megabytes(),
    )


def _pieces(options: argparse.Namespace) -> list[tuple[int, str, str]]:
    pieces = []
    for size in options.series_sizes:
        for likelihood in LIKELIHOODS:
            names = ["StateSpaceGP"]
            if size <= MOST_DENSE:
                names += ["CVIGP", *(["GPflow GPR"] if likelihood == "gaussian" else [])]
            if likelihood == "gaussian":
                names.append("NNGP")
            if likelihood == "gaussian" or size <= options.most_sites:
                pieces += [(size, likelihood, name) for name in names]
    return pieces


def _measure(
    options: argparse.Namespace, num_data: int, likelihood: str, name: str
) -> list[SeriesRow]:
    return [in_a_process(_row, num_data, likelihood, name, options.seed)]


def _cells(row: SeriesRow) -> list[str]:
    def known(value: float, digits: int) -> str:
        return "" if np.isnan(value) else f"{value:.{digits}f}"

    seconds = [known(row.evaluation, 2), f"{row.training:.1f}", f"{row.predicting:.2f}"]
    quality = [known(row.objective, 4), f"{row.log_density:.4f}"]
    return [
        f"{row.num_data:,}", row.likelihood, row.model, *seconds, *quality,
        f"{row.megabytes:,.0f}",
    ]  # fmt: skip


def _section(rows: list[SeriesRow], _: argparse.Namespace) -> Section:
    header = ["rows", "likelihood", "model", "an evaluation, s", "training, s"]
    header += ["1,000 predictions, s", "objective, nats per row", "log density", "memory, MB"]
    return Section([Table("One input", header, [*map(_cells, rows)])], [], NOTES)


PART = Part(SeriesRow, _pieces, _measure, _section)
