"""Decoupled variational Gaussian inference: cost of a gradient, Student-t noise from many starts, held-out densities.

Cost: one gradient of the dual (V16) against one Cholesky factorisation of the kernel matrix. Starts: a robust regression
from random multipliers, with the terms of curvature (V20), with the paper's augmented term alone, and with neither, and
either inner solver. Held out:
counts, and regression with Laplace noise, all hyperparameters learned, against `CVIGP` and GPflow's `VGP`.
"""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
from pathlib import Path
from typing import Any

from .journal import setting_of
from .lagrangian_parts import VARIANTS, Cost, End, HeldOut, cost, held_out, held_out_pieces, starts
from .parts import Part, run_parts
from .report import Figure, Panel, Section, Series, Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 1000, 2000], help="N of the cost")
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), help="of the starts")
    parser.add_argument("--num-data", type=int, default=400, help="at most so many rows of a held-out task")
    parser.add_argument("--rounds", type=int, default=5, help="of multipliers, then hyperparameters")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Measure the parts, and write the report as they come."""
    setting = setting_of(options, "parts", "sizes", "variants")
    return run_parts(PARTS, "Decoupled variational Gaussian inference", setting, options, command, folder)


def _cost_section(rows: list[Cost]) -> Section:
    header = ["N", "gradient ms", "Cholesky ms", "ratio", "peak MB over the base"]
    cells = [
        [
            str(one.num_data),
            f"{one.gradient_ms:.1f}",
            f"{one.cholesky_ms:.1f}",
            f"{one.ratio:.2f}",
            f"{one.peak_mb:.0f}",
        ]
        for one in rows
    ]
    note = "Cost: medians; processor time where one thread is used. Each size has a process of its own."
    return Section([Table("One gradient of the dual", header, cells)], [], [note])


def _held_out_section(rows: list[HeldOut]) -> Section:
    header = ["task", "N", "method", "seconds", "ELBO", "held-out log density", "note"]
    cells = [
        [
            one.task,
            str(one.num_data),
            one.method,
            f"{one.seconds:.1f}",
            f"{one.elbo:.2f}",
            f"{one.log_density:.4f}",
            one.note,
        ]
        for one in rows
    ]
    note = "Held out: seconds of the processor where one thread is used, compilation included; bounds and densities in nats."
    return Section([Table("Held-out density, hyperparameters learned", header, cells)], [], [note])


def _starts_section(rows: list[End]) -> Section:
    panel = Panel("Student-t, sorted", "starts", "nats below the best", _losses(rows), log="y")
    figure = Figure("lagrangian", "Bounds that runs from random multipliers end at.", [panel])
    return Section([_starts_table(rows)], [figure], [])


def _starts_table(rows: list[End]) -> Table:
    best = max(one.elbo for one in rows)
    cells = []
    for variant in dict.fromkeys(one.variant for one in rows):
        mine = [one for one in rows if one.variant == variant]
        reached = [one for one in mine if one.elbo > best - 1e-2]
        falls = sum(one.falls for one in mine)
        settled = sum(one.stop_reason == "converged" for one in mine)
        rising = sum(one.stop_reason == "outer iterations done" for one in mine)
        median = sorted(one.outer for one in mine)[len(mine) // 2]
        ends = sorted(one.elbo for one in mine)
        spread = f"{ends[0]:.2f}, {ends[len(ends) // 2]:.2f}, {ends[-1]:.2f}"
        cells.append(
            [variant, str(len(mine)), str(settled), str(rising), str(median), str(len(reached)), str(falls), spread]
        )
    header = [
        "terms",
        "starts",
        "converged",
        "out of outer iterations",
        "outer iterations, median",
        "within 0.01 nats of the best",
        "outer iterations that lost",
        "ELBO: least, median, most",
    ]
    return Table(f"Student-t noise from random multipliers, best bound {best:.4f} nats", header, cells)


def _losses(rows: list[End]) -> list[Series]:
    best = max(one.elbo for one in rows)
    lines = []
    for variant in dict.fromkeys(one.variant for one in rows):
        losses = sorted(max(best - one.elbo, 1e-9) for one in rows if one.variant == variant)
        lines.append(Series(variant, range(1, len(losses) + 1), losses))
    return lines


PARTS = {
    "cost": Part(Cost, lambda options: [(size,) for size in options.sizes], cost, _cost_section),
    "starts": Part(End, lambda options: [(variant,) for variant in options.variants], starts, _starts_section),
    "held-out": Part(HeldOut, held_out_pieces, held_out, _held_out_section),
}
