"""What each policy for negative precisions does: steps, halvings, clipped sites and bounds, for two
likelihoods.

Likelihoods that are not log-concave can ask for sites of negative precision. Problems are drawn at
random; every policy starts from the prior with full steps. The best bound of a problem is the
highest that any policy reaches."""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
from itertools import product
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite

POLICIES = ("damp", "clip", "raise")
LIKELIHOODS = ("Student-t", "default probit")
CLOSE = 1e-3
"""Nats from the best bound of a problem within which a run has found it."""


class Outcome(NamedTuple):
    """One policy on one problem."""

    likelihood: str
    policy: str
    problem: int
    steps: int
    shortened: int
    clipped: int
    negative: int
    """sites with a negative precision at the end"""
    stop_reason: str
    elbo: float
    """nats; NaN where the run was refused"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", type=int, default=50, help="of each likelihood")
    parser.add_argument("--num-data", type=int, default=60)


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return list(
        product(LIKELIHOODS, POLICIES, range(options.seed, options.seed + options.problems))
    )


def _problem(likelihood: str, num_data: int, seed: int) -> CVIGP:
    """A smooth function of one input: with gross errors for Student-t noise, and wrong labels for
    the probit.
    """
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 10.0, (num_data, 1)), axis=0)
    f = rng.uniform(0.5, 3.0) * np.sin(rng.uniform(0.5, 2.0) * X + rng.uniform(0.0, 6.0))
    kernel = gpflow.kernels.Matern52(
        variance=10.0 ** rng.uniform(-0.5, 1.5), lengthscales=10.0 ** rng.uniform(-0.5, 0.5)
    )
    wrong = rng.uniform(size=f.shape) < 0.15
    if likelihood == "Student-t":
        Y = f + 0.1 * rng.normal(size=f.shape) + wrong * rng.normal(0.0, 4.0, f.shape)
        return CVIGP(
            (X, Y),
            kernel,
            gpflow.likelihoods.StudentT(scale=10.0 ** rng.uniform(-1.0, -0.3), df=3.0),
        )
    labels = (f > 0.0) ^ wrong
    labels[0], labels[-1] = 0, 1  # so that there are both
    return CVIGP((X, labels.astype(float)), kernel, gpflow.likelihoods.Bernoulli())


def _measure(options: argparse.Namespace, likelihood: str, policy: str, seed: int) -> list[Outcome]:
    """Run one policy on one problem; a refusal is an outcome, too."""
    model = _problem(likelihood, options.num_data, seed)
    try:
        result = ConjugateComputation(negative_precision=policy).run(model, steps=200)
    except NumericalError:
        return [Outcome(likelihood, policy, seed, 0, 0, 0, 0, "raised", float("nan"))]
    negative = int(np.sum(model.basis.tau.numpy() < 0.0))
    counts = result.steps, result.shortened_steps, result.clipped_sites, negative
    return [Outcome(likelihood, policy, seed, *counts, result.reason, result.elbo)]


def _section(outcomes: list[Outcome], _: argparse.Namespace) -> Section:
    """Counts per likelihood and policy, and a panel per likelihood."""
    rows, panels = [], []
    for likelihood in LIKELIHOODS:
        groups = {policy: _of(outcomes, likelihood, policy) for policy in POLICIES}
        best = _best(groups)
        rows += [_row(likelihood, policy, group, best) for policy, group in groups.items()]
        losses = [
            Series(
                policy,
                range(1, len(group) + 1),
                np.sort([max(best[one.problem] - one.elbo, 1e-9) for one in group]),
            )
            for policy, group in groups.items()
        ]
        panels.append(Panel(likelihood, "problems, sorted", "nats below the best", losses, log="y"))
    header = (
        "likelihood",
        "policy",
        "problems",
        "converged",
        "refused",
        "within 1e-3 nats of the best",
    )
    header += (
        "median steps",
        "halvings",
        "clipped sites",
        "problems with negative sites at the end",
    )
    return Section(
        [Table("counts", header, rows)],
        [Figure("policies", "Loss of the bound by policy; refused runs are left out.", panels)],
        ["A run that is not converged ends when no step raises its bound, or after 200 steps."],
    )


def _of(outcomes: list[Outcome], likelihood: str, policy: str) -> list[Outcome]:
    return [one for one in outcomes if (one.likelihood, one.policy) == (likelihood, policy)]


def _best(groups: dict[str, list[Outcome]]) -> dict[int, float]:
    problems = {one.problem for group in groups.values() for one in group}
    return {
        n: np.nanmax([one.elbo for group in groups.values() for one in group if one.problem == n])
        for n in problems
    }


def _row(likelihood: str, policy: str, group: list[Outcome], best: dict[int, float]) -> list[str]:
    solved = [one for one in group if one.stop_reason != "raised"]
    close = sum(one.elbo >= best[one.problem] - CLOSE for one in solved)
    counts = [
        len(group),
        sum(one.stop_reason == "converged" for one in group),
        len(group) - len(solved),
        close,
    ]
    counts += [int(np.median([one.steps for one in solved] or [0]))]
    counts += [sum(getattr(one, name) for one in solved) for name in ("shortened", "clipped")]
    return [likelihood, policy, *map(str, counts), str(sum(one.negative > 0 for one in solved))]


SUITE = Suite(
    "Policies for negative precisions",
    {"policies": Part(Outcome, _pieces, _measure, _section)},
    _add_arguments,
    selecting=("problems",),
)
