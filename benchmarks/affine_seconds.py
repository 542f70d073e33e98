"""Seconds beside our own Gaussian KL, in the same run: logistic regression and kernel regression with a weight a datum.

Challis & Barber 2012 report 8 s against 0.2 s for the first with D = N = 10, and 250 s against 5 s for the second. What is
compiled once is taken off: the time of a run less that of the same run with one evaluation.
"""

from __future__ import annotations

__all__ = ["Seconds", "measure", "section"]

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from gpflow_decoupled.distributions import base_variable
from gpflow_decoupled.optimizers import AffineIndependentAscent
from gpflow_decoupled.optimizers.affine_result import AffineTrace
from gpflow_decoupled.optimizers.gaussian_kl import GaussianProblem

from .affine_gain import logistic
from .affine_kernel import FIXED, LEARNED, fitted, problem
from .classifiers import clock
from .report import Section, Table

_PAPER = {"logistic": "8 / 0.2", "kernel": "250 / 5"}


class Seconds(NamedTuple):
    """One problem; seconds of the processor on one thread, else of the wall."""

    problem: str
    weights: int
    num_data: int
    gaussian_seconds: float
    affine_seconds: float
    """the Gaussian, which it starts from, is in it"""
    compile_seconds: float
    """of a run with one evaluation, the making of the model included"""
    evaluations: int
    near_evaluations: int
    """until the bound is within 0.01 nats of the last"""
    gaussian: float
    affine: float


def measure(options: Any) -> list[Seconds]:
    """Logistic regression on so many data sets as `--rounds` says, kernel regression with both choices of shapes."""
    rows = []

    def labels(seed: int, most: int) -> tuple[Any, Any]:
        model, _ = logistic(options.weights, options.weights, seed)
        return model, AffineIndependentAscent(max_evaluations=most).run(model)

    for seed in tqdm(range(options.seed, options.seed + options.rounds)):
        rows.append(_timed("logistic", partial(labels, seed)))
    found = problem("housing" if options.data else "friedman", 0, options)
    for shapes in (FIXED, LEARNED):
        rows.append(_timed(f"kernel, power {shapes}", partial(fitted, found, "generalized_normal", shapes)))
    return rows


def _timed(name: str, run: Callable[[int], tuple[Any, Any]]) -> Seconds:
    """A problem whose model and result `run` makes, in so many evaluations at most."""
    if name.startswith("kernel"):
        base_variable("generalized_normal").characteristic(
            tf.zeros([1, 1], tf.float64), tf.constant([[1.5]], tf.float64)
        )
    began = clock()
    model, result = run(2000)
    whole, began = clock() - began, clock()
    run(1)
    compiled = clock() - began
    history = {key: values[result.history["stage"] == 1] for key, values in result.history.items()}
    near = np.argmax(history["elbo"] > history["elbo"][-1] - 0.01)
    return Seconds(
        name, model.basis.size, len(model.data[0]), _gaussian(model), max(whole - compiled, 0.0), compiled,
        result.evaluations, int(np.sum(history["evaluations"][: near + 1])), result.gaussian_elbo, result.affine_elbo,
    )  # fmt: skip


def _gaussian(model: Any) -> float:
    """Seconds of the Gaussian KL alone, compiled."""
    how, priors = model.integration, model.weight_priors
    constant = 0.0 if priors is None else priors.log_volume
    problem = GaussianProblem(model.site_groups(), model.basis.gaussian, constant, how, AffineTrace())
    began = clock()
    problem.solve(1e-5, 2000)
    return clock() - began


def section(rows: list[Seconds]) -> Section:
    """Medians over runs of the same problem."""
    cells = []
    for name in dict.fromkeys(one.problem for one in rows):
        mine = [one for one in rows if one.problem == name]
        fields = ("affine_seconds", "gaussian_seconds", "compile_seconds", "evaluations", "near_evaluations")
        affine, gaussian, compiled, evaluations, near = (np.median([getattr(one, f) for one in mine]) for f in fields)
        gains = [one.affine - one.gaussian for one in mine]
        cells.append(
            [
                name,
                f"{mine[0].weights}, {mine[0].num_data}",
                str(len(mine)),
                f"{affine:.2f}",
                f"{gaussian:.3f}",
                f"{compiled:.1f}",
                f"{evaluations:.0f}",
                f"{near:.0f}",
                f"{np.median(gains):.3f}",
                _PAPER[name.split(",")[0]],
            ]
        )
    header = ["problem", "D, N", "runs", "AI s", "Gaussian s", "compilation s", "evaluations", "of them to 0.01 nats"]
    header += ["AI - Gaussian, nats", "the paper's s: AI / Gaussian"]
    note = "Seconds: medians, of the processor on one thread, else wall; compilation apart; AI s include the Gaussian stage."
    return Section([Table("Seconds", header, cells)], [], [note])
