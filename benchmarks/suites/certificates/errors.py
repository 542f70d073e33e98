"""Certificates on real data beside errors on held-out rows."""

from __future__ import annotations

__all__ = ["PART", "ROWS"]

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from gpflow_decoupled.certificates import (
    CertifiedSelection,
    classifier_errors,
    split_for_certificate,
)

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ..full_gp.problems import TASKS, make_problem
from .coverage import BOUNDS
from .priors import MEAN_POINTS, SPARSE, certified

ROWS = ("fixed", "sparse", "orthogonal", "split", "same-data")
"""Origins of the priors, beside the grid."""


class Row(NamedTuple):
    """One classifier: its certificate, its errors on held-out rows, and the grid that its prior was
    chosen from.
    """

    task: str
    prior: str
    gibbs_error: float
    """on the sample, as the next two"""
    bayes_error: float
    voting_error: float
    kl: float
    """nats"""
    n: int
    delta: float
    settings: int
    """size of the grid; 1 where nothing was chosen"""
    seeger: float
    maurer: float
    pinsker: float
    mcallester: float
    hyperparameters: str
    bayes_bound: float
    held_out_gibbs: float
    held_out_bayes: float
    held_out_voting: float
    grid: list[dict[str, float]]
    """variance, lengthscale, bound, held-out Gibbs error and log evidence of each setting, where
    there was a choice
    """


def _measure(options: argparse.Namespace, task: str) -> list[Row]:
    """A row for each origin of the prior."""
    problem = make_problem(
        task, options.num_data, options.data, variance=10.0, exact=True, seed=options.seed
    )
    test, data = split_for_certificate((problem.X, problem.Y), 0.2, options.seed)
    if (
        TASKS[task].unit is None
    ):  # with statistics of the sample itself, the prior would depend on the sample
        centre, spread = test[0].mean(0), test[0].std(0)
        test, data = (((X - centre) / spread, Y) for X, Y in (test, data))
    found, chosen = certified(data, test, options)
    rows = []
    for label, model, certificate in found:
        held_out = {
            f"held_out_{name}": value
            for name, value in classifier_errors(model, test)._asdict().items()
        }
        grid = _grid(chosen) if certificate is chosen.certificate else []
        bayes = certificate.bayes_bound
        rows.append(
            Row(task, label, **asdict(certificate), bayes_bound=bayes, **held_out, grid=grid)
        )
    return rows


def _grid(chosen: CertifiedSelection) -> list[dict[str, float]]:
    names = ("variance", "lengthscale", "bound", "held_out", "log_evidence")
    columns = chosen.certificates, chosen.test_errors, chosen.log_evidence
    return [
        dict(zip(names, (*setting, certificate.bound, errors.gibbs, float(evidence))))
        for setting, certificate, errors, evidence in zip(chosen.settings, *columns)
    ]


def _section(rows: Sequence[Row], options: argparse.Namespace) -> Section:
    """A row per prior; and bounds, errors and evidence over the grid of each task."""
    lines = []
    for row in rows:
        rates = [
            "gibbs_error",
            *BOUNDS,
            "bayes_bound",
            *(f"held_out_{name}" for name in ("gibbs", "bayes", "voting")),
        ]
        numbers = [str(row.n), f"{row.kl:.1f}", *(f"{getattr(row, name):.3f}" for name in rates)]
        lines.append([f"{row.task}, {row.prior}", *numbers])
    header = ("task, prior", "n", "KL, nats", "Gibbs, sample", *BOUNDS, "Bayes bound")
    header += ("held out: Gibbs", "Bayes", "voting")
    notes = [
        (
            f"delta = {options.delta:g}; a bound of the grid is at delta / J. Logit, expectations"
            " exact. A fifth is held out."
        ),
        (
            "Fixed: variance 10, lengthscale the root of the number of columns. Pixels are from 0"
            " or -1 to 1; other inputs have the scale of the held-out rows, because with that of"
            " the sample the prior would depend on the sample."
        ),
        (
            "Split: half of the training rows for the hyperparameters, the other half for posterior"
            " and certificate."
        ),
        (
            f"Sparse: {SPARSE} inducing inputs; orthogonal: {MEAN_POINTS} mean points more. Both"
            " under the grid's best prior."
        ),
    ]
    panels = [panel for row in rows if row.grid for panel in _panels(row)]
    figure = Figure("certificates", "Dashed: held-out Gibbs error.", panels, columns=2)
    return Section([Table("Certificates and held-out errors", header, lines)], [figure], notes)


def _panels(row: Row) -> list[Panel]:
    """Bound and held-out Gibbs error against the lengthscale, a colour per variance; and the log
    evidence.
    """
    rates, evidence = [], []
    for variance in dict.fromkeys(one["variance"] for one in row.grid):
        mine = [one for one in row.grid if one["variance"] == variance]
        x, bound, held_out, log_evidence = (
            [one[name] for one in mine]
            for name in ("lengthscale", "bound", "held_out", "log_evidence")
        )
        label = f"variance {variance:g}"
        rates += [Series(label, x, bound), Series(label, x, held_out, dashed=True)]
        evidence.append(Series(label, x, log_evidence))
    return [
        Panel(f"{row.task}: bound, held-out Gibbs error", "lengthscale", "error rate", rates, "x"),
        Panel(f"{row.task}: log evidence", "lengthscale", "ELBO, nats", evidence, "x"),
    ]


def _pieces(options: argparse.Namespace) -> list[tuple]:
    tasks = options.tasks or [
        name for name in ("usps35", "cancer") if options.data or name == "cancer"
    ]
    return [(task,) for task in tasks]


PART = Part(Row, _pieces, _measure, _section)
