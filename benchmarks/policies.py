"""What each policy for negative precisions does: steps, halvings, clipped sites and bounds, likelihood by likelihood.

Problems are drawn at random. Every policy starts from the same prior, with full steps. Best is the highest bound that any
policy reaches on a problem.
"""

from __future__ import annotations

__all__ = ["LIKELIHOODS", "Outcome", "add_arguments", "run", "solve"]

import argparse
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import gpflow
import numpy as np

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

from .journal import Journal, setting_of
from .report import Figure, Panel, Report, Series, Table, write

POLICIES = ("damp", "clip", "raise")
LIKELIHOODS = ("Student-t", "default probit")
CLOSE = 1e-3
"""Nats."""


@dataclass
class Outcome:
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", type=int, default=50, help="of each likelihood")
    parser.add_argument("--num-data", type=int, default=60)


def problem(likelihood: str, num_data: int, seed: int) -> CVIGP:
    """A smooth function of one input: with gross errors for Student-t noise, and wrong labels for the probit."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 10.0, (num_data, 1)), axis=0)
    f = rng.uniform(0.5, 3.0) * np.sin(rng.uniform(0.5, 2.0) * X + rng.uniform(0.0, 6.0))
    kernel = gpflow.kernels.Matern52(
        variance=10.0 ** rng.uniform(-0.5, 1.5), lengthscales=10.0 ** rng.uniform(-0.5, 0.5)
    )
    wrong = rng.uniform(size=f.shape) < 0.15
    if likelihood == "Student-t":
        Y = f + 0.1 * rng.normal(size=f.shape) + wrong * rng.normal(0.0, 4.0, f.shape)
        return CVIGP((X, Y), kernel, gpflow.likelihoods.StudentT(scale=10.0 ** rng.uniform(-1.0, -0.3), df=3.0))
    labels = (f > 0.0) ^ wrong
    labels[0], labels[-1] = 0, 1  # both are there
    return CVIGP((X, labels.astype(float)), kernel, gpflow.likelihoods.Bernoulli())


def solve(likelihood: str, policy: str, num_data: int, seed: int) -> Outcome:
    """Run one policy to its end; a refusal is an outcome too."""
    model = problem(likelihood, num_data, seed)
    try:
        result = ConjugateComputation(negative_precision=policy).run(model, steps=200)
    except NumericalError:
        return Outcome(likelihood, policy, seed, 0, 0, 0, 0, "raised", float("nan"))
    negative = int(np.sum(model.basis.tau.numpy() < 0.0))
    return Outcome(
        likelihood,
        policy,
        seed,
        result.steps,
        result.shortened_steps,
        result.clipped_sites,
        negative,
        result.stop_reason,
        result.elbo,
    )


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Outcome]:
    """Solve every problem with every policy, and write the report."""
    seeds = range(options.seed, options.seed + options.problems)
    found = Journal(folder, "policies", setting_of(options, "problems"), options.resume).collect(
        list(product(LIKELIHOODS, POLICIES, seeds)),
        lambda likelihood, policy, seed: asdict(solve(likelihood, policy, options.num_data, seed)),
        lambda rows: write(folder, _report([Outcome(**row) for row in rows], command)),
    )
    return [Outcome(**row) for row in found]


def _report(outcomes: list[Outcome], command: str) -> Report:
    rows, panels = [], []
    for likelihood in LIKELIHOODS:
        groups = {policy: _of(outcomes, likelihood, policy) for policy in POLICIES}
        best = _best(groups)
        rows += [_row(likelihood, policy, group, best) for policy, group in groups.items()]
        losses = [
            Series(
                policy, range(1, len(group) + 1), np.sort([max(best[one.problem] - one.elbo, 1e-9) for one in group])
            )
            for policy, group in groups.items()
        ]
        panels.append(Panel(likelihood, "problems, sorted", "nats below the best", losses, log="y"))
    header = ("likelihood", "policy", "problems", "converged", "refused", "within 1e-3 nats of the best")
    header += ("median steps", "halvings", "clipped sites", "problems with negative sites at the end")
    return Report(
        "policies",
        "Policies for negative precisions",
        command,
        [asdict(one) for one in outcomes],
        [Table("counts", header, rows)],
        [Figure("policies", "Loss of the bound by policy; refused runs are left out.", panels)],
        ["A run that is not converged ends when no step raises its bound, or after 200 steps."],
    )


def _of(outcomes: list[Outcome], likelihood: str, policy: str) -> list[Outcome]:
    return [one for one in outcomes if (one.likelihood, one.policy) == (likelihood, policy)]


def _best(groups: dict[str, list[Outcome]]) -> dict[int, float]:
    problems = {one.problem for group in groups.values() for one in group}
    return {
        n: np.nanmax([one.elbo for group in groups.values() for one in group if one.problem == n]) for n in problems
    }


def _row(likelihood: str, policy: str, group: list[Outcome], best: dict[int, float]) -> list[Any]:
    solved = [one for one in group if one.stop_reason != "raised"]
    close = sum(one.elbo >= best[one.problem] - CLOSE for one in solved)
    counts = [len(group), sum(one.stop_reason == "converged" for one in group), len(group) - len(solved), close]
    counts += [int(np.median([one.steps for one in solved] or [0]))]
    counts += [sum(getattr(one, name) for one in solved) for name in ("shortened", "clipped")]
    return [likelihood, policy, *map(str, counts), str(sum(one.negative > 0 for one in solved))]
