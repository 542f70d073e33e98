"""Figure 2 of Salimbeni et al. (2018): every basis with q by natural gradients and by Adam, against
steps and seconds.
"""

from __future__ import annotations

__all__ = ["PART", "models"]

import argparse
from collections.abc import Sequence

import numpy as np

from ...harness.metrics import METRICS
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from .runs import Run, cell, pieces, settings_of, trained

TASKS = ("kin40k",)
SHOWN = ("elbo", "rmse", "log_density")
_POINTS, _FIRST = 16, 10
"""Points of a curve, geometrically spaced, and the step of the first."""


def models(num_beta: int, num_gamma: int) -> list[str]:
    """Each basis twice, but the decoupled one, whose q has no natural gradient, by Adam alone."""
    both = f"{num_beta}+{num_gamma}"
    names = f"coupled-{num_beta}", f"orthogonal-{both}", f"hybrid-{both}"
    return [*(f"{name}{by}" for name in names for by in ("", "-adam")), f"decoupled-{both}-adam"]


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return pieces(options, TASKS, options.models or models(*options.sizes[:2]))


def _measure(options: argparse.Namespace, task: str, split: int, model: str) -> list[Run]:
    """Train one model for so many steps, and evaluate it on the way."""
    first = min(_FIRST, options.steps)
    targets = sorted({round(float(step)) for step in np.geomspace(first, options.steps, _POINTS)})
    return [
        trained(
            options, settings_of(options, [options.steps], "steps"), targets, task, split, model
        )
    ]


def _section(runs: Sequence[Run], options: argparse.Namespace) -> Section:
    """Where each run ended, and its metrics against steps and against seconds."""
    groups: dict[str, list[Run]] = {}
    for one in runs:
        title = one.task if len(options.splits) == 1 else f"{one.task}, split {one.split}"
        groups.setdefault(title, []).append(one)
    tables, panels = [], []
    for title, group in groups.items():
        ends = [
            {name: one.snapshots[-1].metrics.get(name, float("nan")) for name in SHOWN}
            for one in group
        ]
        best = {name: METRICS[name].best([end[name] for end in ends]) for name in SHOWN}
        rows = [
            [
                one.model,
                f"{one.processor_ms:.1f}",
                f"{one.snapshots[-1].cpu_seconds:.0f}",
                *(cell(name, end[name], end[name] == best[name]) for name in SHOWN),
                one.note,
            ]
            for one, end in zip(group, ends)
        ]
        header = ["model", "ms per step", "s", *(METRICS[name].label for name in SHOWN), "note"]
        tables.append(Table(f"{title}: {options.steps} steps", header, rows))
        for label, field in (("steps", "step"), ("processor seconds", "cpu_seconds")):
            panels += [
                Panel(
                    title,
                    label,
                    METRICS[name].label,
                    [_series(one, field, name) for one in group],
                    log="x",
                )
                for name in SHOWN
            ]
    notes = [
        "All models start at the same kernel, noise and inducing points, learn all of them, and let"
        " their step sizes fall over the last fifth. Dashed, `-adam`: Adam moves q like everything"
        " else. Seconds are of the processor, without compilation, k-means and evaluation."
    ]
    figure = Figure(
        "regression_curves",
        "Every basis by natural gradients and by Adam.",
        panels,
        columns=len(SHOWN),
    )
    return Section(tables, [figure], notes)


def _series(one: Run, field: str, name: str) -> Series:
    seen = [snapshot for snapshot in one.snapshots if name in snapshot.metrics]
    values = (
        [getattr(snapshot, field) for snapshot in seen],
        [snapshot.metrics[name] for snapshot in seen],
    )
    return Series(one.model, *values, one.model.endswith("-adam"))


PART = Part(Run, _pieces, _measure, _section)
