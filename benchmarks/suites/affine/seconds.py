"""Seconds beside our own Gaussian KL in the same run: logistic regression, and kernel regression
with a weight per row.

Challis & Barber (2012) report 8 s against 0.2 s for the first with D = N = 10, and 250 s against 5
s for the second. Compilation is not part of the seconds."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np

from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent, AffineResult

from ...harness.machine import counts_processor_seconds
from ...harness.report import Section, Table
from ...harness.runner import Part
from .gain import logistic
from .kernel import FIXED, LEARNED, fitted, problem

_PAPER = {"logistic": "8 / 0.2", "kernel": "250 / 5"}


class Seconds(NamedTuple):
    """One problem; processor seconds with one thread, else wall-clock seconds."""

    problem: str
    weights: int
    num_data: int
    gaussian_seconds: float
    affine_seconds: float
    """with those of the Gaussian, which it starts from"""
    compile_seconds: float
    """until all compiled functions have run once"""
    evaluations: int
    near_evaluations: int
    """until the bound is within 0.01 nats of its end"""
    gaussian: float
    affine: float


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """Logistic regression on `--rounds` data sets, kernel regression with fixed and with learned
    shapes.
    """
    seeds = range(options.seed, options.seed + options.rounds)
    return [
        *(("logistic", seed) for seed in seeds),
        *(("kernel", shapes) for shapes in (FIXED, LEARNED)),
    ]


def measure(options: argparse.Namespace, kind: str, which: int | str) -> list[Seconds]:
    """One run: `which` is a seed, or a choice of shapes."""

    def labels() -> tuple[AffineIndependentGLM, AffineResult]:
        model, _ = logistic(options.weights, options.weights, which)
        return model, AffineIndependentAscent().run(model)

    if kind == "logistic":
        return [_timed("logistic", labels)]
    found = problem("housing" if options.data else "friedman", 0, options)
    return [_timed(f"kernel, power {which}", partial(fitted, found, "generalized_normal", which))]


def _timed(name: str, run: Callable[[], tuple[AffineIndependentGLM, AffineResult]]) -> Seconds:
    """Seconds of the problem that `run` solves. The clock of the benchmarks takes the place of the
    ascent's own.
    """
    with mock.patch.object(
        time, "perf_counter", time.process_time if counts_processor_seconds() else time.perf_counter
    ):
        model, result = run()
    history = {key: values[result.history["stage"] == 1] for key, values in result.history.items()}
    near = np.argmax(history["elbo"] > history["elbo"][-1] - 0.01)
    return Seconds(
        name,
        model.basis.size,
        len(model.data[0]),
        result.gaussian_seconds,
        result.seconds - result.tracing_seconds,
        result.tracing_seconds,
        result.evaluations,
        int(np.sum(history["evaluations"][: near + 1])),
        result.gaussian_elbo,
        result.affine_elbo,
    )


def section(rows: list[Seconds], _: argparse.Namespace) -> Section:
    """Medians over runs of the same problem."""
    cells = []
    for name in dict.fromkeys(one.problem for one in rows):
        mine = [one for one in rows if one.problem == name]
        fields = (
            "affine_seconds",
            "gaussian_seconds",
            "compile_seconds",
            "evaluations",
            "near_evaluations",
        )
        affine, gaussian, compiled, evaluations, near = (
            np.median([getattr(one, f) for one in mine]) for f in fields
        )
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
    header = [
        "problem",
        "D, N",
        "runs",
        "AI s",
        "Gaussian s",
        "compilation s",
        "evaluations",
        "of them to 0.01 nats",
    ]
    header += ["AI - Gaussian, nats", "the paper's s: AI / Gaussian"]
    note = (
        "Seconds: medians, of the processor with one thread, else wall; no compilation; AI s"
        " include the Gaussian stage."
    )
    return Section([Table("Seconds", header, cells)], [], [note])


PART = Part(Seconds, _pieces, measure, section)
