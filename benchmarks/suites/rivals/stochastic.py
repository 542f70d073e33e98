"""Bound against seconds and passes: sites, PG-SVI, and gradients of a parametrised q, on all rows
or on minibatches.

All start at the prior. Steps on all rows have exact expectations; those on minibatches have draws,
the same number for all methods. Each method is run with several step sizes, and the one with the
best end is shown."""

from __future__ import annotations

__all__ = ["METHODS", "PART"]

import argparse
from collections.abc import Callable

import gpflow

from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

from ...harness.report import Section
from ...harness.runner import Part
from ..full_gp.problems import Problem
from .gradients import VGPGradient, started_by_adam
from .problems import labels
from .proximal import ProximalGradient
from .runs import Method, Run, Started, pieces, random_batches, section, trace

Start = Callable[[Problem, float, int | None, int], Started]


def _conjugate(update: str) -> Start:
    def start(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
        model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        rule = ConjugateComputation(size, update=update, samples=samples, seed=seed)
        return Started(
            model,
            lambda rows, step: rule.minimize(model, rows, step).ok,
            model.basis.variables,
            model.elbo,
        )

    return start


def _proximal(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
    model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
    rule = ProximalGradient(model, size, samples=samples, seed=seed)
    return Started(
        model, lambda rows, step: rule.minimize(rows, step).ok, model.basis.variables, model.elbo
    )


def _gradient(estimator: str | None) -> Start:
    def start(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
        model = gpflow.models.VGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        rule = VGPGradient(model, estimator, samples=samples or 1, rate=size, seed=seed)
        return started_by_adam(rule, model.elbo)

    return start


METHODS = {
    "cvi": Method("CVI, all rows", False, False, _conjugate("local")),
    "pg-svi": Method("PG-SVI, all rows", False, False, _proximal),
    "vgp": Method("VGP, exact gradient, all rows", False, True, _gradient(None)),
    "cvi-local": Method("CVI, local (C20)", True, False, _conjugate("local")),
    "cvi-global": Method("CVI, global (C19)", True, False, _conjugate("global")),
    "pg-svi-batches": Method("PG-SVI (C65)", True, False, _proximal),
    "reparameterised": Method("VGP, reparameterised", True, True, _gradient("reparameterised")),
    "score-function": Method("VGP, score function", True, True, _gradient("score function")),
}
"""Name -> method, in the order of the report."""


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return pieces(METHODS, options)


def _measure(options: argparse.Namespace, name: str, size: float) -> list[Run]:
    problem, method = labels(options, options.num_data), METHODS[name]
    held_out = (problem.X[problem.test], problem.Y[problem.test]) if problem.test.any() else None
    problem = problem.training()
    rows = len(problem.X)
    batch, samples = (
        (min(options.batch_size, rows), options.samples) if method.batches else (rows, None)
    )
    started = method.start(problem, size, samples, options.seed)
    found = trace(
        started,
        random_batches(rows, batch, options.seed),
        rows,
        options.stochastic_seconds,
        held_out,
    )
    return [Run(problem.name, rows, name, size, batch, samples, **found)]


def _section(runs: list[Run], options: argparse.Namespace) -> Section:
    return section("rivals_stochastic", "the prior", METHODS, runs, options)


PART = Part(Run, _pieces, _measure, _section)
