"""Bound, or estimate of the evidence, against seconds: all methods on one problem."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from typing import NamedTuple

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ..full_gp.methods import METHODS, best_of
from .problems import labels

NAMES = ("cvi", "lcl", "opper", "ep", "ep-half", "newton")
_GOAL = 1e-3
"""Nats from its own end at which a method counts as done."""
_FLOOR, _DEPTH = 1e-7, 12.0
"""The smallest distance in the picture, and how far below the highest value it reaches, in nats."""
_LIMIT = 60.0


class Trace(NamedTuple):
    """One method."""

    problem: str
    num_data: int
    label: str
    estimate: bool
    """whether `values` are estimates of the log evidence, and not bounds"""
    compile_seconds: float
    seconds: list[float]
    """without compilation"""
    values: list[float]
    """nats, after each iteration"""
    elbo: float
    """nats, of the final q(f)"""
    note: str


def _pieces(_: argparse.Namespace) -> list[tuple]:
    return [(name,) for name in NAMES]


def _measure(options: argparse.Namespace, name: str) -> list[Trace]:
    problem = labels(options, options.num_data)
    fit = best_of(METHODS[name], problem, _LIMIT, options.repeats)
    values = list(fit.evidence) or fit.elbo
    times = fit.compile_seconds, fit.seconds
    return [
        Trace(
            problem.name,
            len(problem.X),
            fit.label,
            bool(fit.evidence),
            *times,
            values,
            fit.elbo[-1],
            fit.note,
        )
    ]


def _section(traces: list[Trace], options: argparse.Namespace) -> Section:
    """A table of ends and seconds, and two panels: values, and distances from each method's own
    end.
    """
    first = traces[0]
    header = [
        "method",
        "what it reports",
        "at its end (nats)",
        "ELBO of its q (nats)",
        "iterations",
    ]
    header += [f"s to within {_GOAL:g} nats of its end", "s in all", "compilation s", "end"]
    title = f"{first.problem}, N = {first.num_data}, logistic link, variance {options.variance:g}"
    highest = max(trace.values[-1] for trace in traces)
    values = [
        Series(
            trace.label,
            trace.seconds,
            [max(v, highest - _DEPTH) for v in trace.values],
            dashed=trace.estimate,
        )
        for trace in traces
    ]
    gaps = [
        Series(
            trace.label,
            trace.seconds,
            [max(abs(v - trace.values[-1]), _FLOOR) for v in trace.values],
            trace.estimate,
        )
        for trace in traces
    ]
    panels = [
        Panel(title.split(",")[0], "seconds", "bound, or estimate (nats)", values, "x"),
        Panel(f"N = {first.num_data}", "seconds", "distance from own end (nats)", gaps, "xy"),
    ]
    caption = "Bounds (solid) and estimates of the log evidence (dashed) against seconds."
    notes = [
        "Estimates may be above the log evidence; bounds are not. Seconds are without compilation."
    ]
    figure = Figure("rivals", caption, panels, columns=2)
    return Section([Table(title, header, [_row(trace) for trace in traces])], [figure], notes)


def _row(trace: Trace) -> list[str]:
    end = trace.values[-1]
    late = max((i for i, value in enumerate(trace.values) if abs(value - end) > _GOAL), default=-1)
    return [
        trace.label,
        "estimate" if trace.estimate else "bound",
        f"{end:.4f}",
        f"{trace.elbo:.4f}",
        str(len(trace.values)),
        f"{trace.seconds[min(late + 1, len(trace.seconds) - 1)]:.3f}",
        f"{trace.seconds[-1]:.3f}",
        f"{trace.compile_seconds:.1f}",
        trace.note,
    ]


PART = Part(Trace, _pieces, _measure, _section)
