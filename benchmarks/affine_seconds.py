"""Seconds beside our own Gaussian KL, in the same run: logistic regression and kernel regression with a weight a datum.

Challis & Barber 2012 report 8 s against 0.2 s for the first with D = N = 10, and 250 s against 5 s for the second.
"""

from __future__ import annotations

__all__ = ["Seconds", "measure", "section"]

from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from gpflow_decoupled.optimizers import AffineIndependentAscent

from .affine_gain import logistic
from .affine_kernel import FIXED, LEARNED, fitted, problem
from .report import Section, Table

_PAPER = {"logistic": "8 / 0.2", "kernel": "250 / 5"}


class Seconds(NamedTuple):
    """One run, wall clock; compilation is in `compile_seconds` alone."""

    problem: str
    weights: int
    num_data: int
    gaussian_seconds: float
    affine_seconds: float
    """the Gaussian, which it starts from, is in it"""
    near_seconds: float
    """of the climb, until its bound is within 0.01 nats of its last"""
    compile_seconds: float
    evaluations: int
    gaussian: float
    affine: float


def measure(options: Any) -> list[Seconds]:
    """Logistic regression on so many data sets as `--rounds` says, kernel regression with both choices of shapes."""
    rows = []
    for seed in tqdm(range(options.seed, options.seed + options.rounds)):
        model, _ = logistic(options.weights, options.weights, seed)
        rows.append(_row("logistic", options.weights, options.weights, AffineIndependentAscent().run(model)))
    found = problem("housing" if options.data else "friedman", 0, options)
    for shapes in (FIXED, LEARNED):
        _, result = fitted(found, "generalized_normal", shapes)
        rows.append(_row(f"kernel, power {shapes}", found.K.shape[1], len(found.K), result))
    return rows


def _row(name: str, weights: int, num_data: int, result: Any) -> Seconds:
    history = {key: values[result.history["stage"] == 1] for key, values in result.history.items()}
    near = history["seconds"][np.argmax(history["elbo"] > history["elbo"][-1] - 0.01)] - history["seconds"][0]
    compiled = result.tracing_seconds
    return Seconds(
        name, weights, num_data, result.gaussian_seconds, result.seconds - compiled, float(near), compiled,
        result.evaluations, result.gaussian_elbo, result.affine_elbo,
    )  # fmt: skip


def section(rows: list[Seconds]) -> Section:
    """Medians over runs of the same problem."""
    cells = []
    for name in dict.fromkeys(one.problem for one in rows):
        mine = [one for one in rows if one.problem == name]
        fields = ("affine_seconds", "gaussian_seconds", "near_seconds", "compile_seconds", "evaluations")
        affine, gaussian, near, compiled, evaluations = (np.median([getattr(one, f) for one in mine]) for f in fields)
        gains = [one.affine - one.gaussian for one in mine]
        cells.append(
            [
                name,
                f"{mine[0].weights}, {mine[0].num_data}",
                str(len(mine)),
                f"{affine:.2f}",
                f"{near:.2f}",
                f"{gaussian:.3f}",
                f"{compiled:.1f}",
                f"{evaluations:.0f}",
                f"{np.median(gains):.3f}",
                _PAPER[name.split(",")[0]],
            ]
        )
    header = ["problem", "D, N", "runs", "AI s", "climb to 0.01 nats s", "Gaussian s", "compilation s", "evaluations"]
    header += ["AI - Gaussian, nats", "the paper's s: AI / Gaussian"]
    note = "Seconds: wall clock, medians; compilation is apart, and the Gaussian stage is in the AI seconds."
    return Section([Table("Seconds", header, cells)], [], [note])
