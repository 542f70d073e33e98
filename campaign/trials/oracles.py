"""Models that compute with neighbours beside the dense one, and likelihoods beside quadrature."""

from __future__ import annotations

__all__ = ["PART"]

import tempfile
from pathlib import Path

import numpy as np
from gpflow.models import GPModel

import gpflow_decoupled as gd
from gpflow_decoupled.models import CVIGP, NNGP, StateSpaceGP
from gpflow_decoupled.optimizers import ConjugateComputation, SiteSweeps

from ..outcome import Case, Outcome, Part
from ..problems import Problem, draw_problem
from ..problems.kernels import draw_kernel
from ..problems.likelihoods import LIKELIHOODS
from ..references import DENSITIES, expected_log_density, log_expected_density
from ..turns import Check, by_turns

_FAR = 2.0**24
"""Of the origin; X are multiples of 2^-10, so that differences are exact there."""
_ROUND_OFF, _JITTER = 1e-6, 1e-3
"""Differences from the dense model: of arithmetic, and of an NNGP's jitter, which is noise."""


def _drawn(rng: np.random.Generator, model: str, names: list[str]) -> Problem:
    """A moderate problem whose labels have one latent, with X on a grid."""
    problem = draw_problem(rng, moderate=True, rows=int(rng.integers(3, 25)), model=model)
    X = np.round(1024.0 * problem.data[0]) / 1024.0
    problem.likelihood, problem.latents = str(rng.choice(names)), 1
    Y = LIKELIHOODS[problem.likelihood].observe(rng, np.sin(3.0 * X[:, :1]), problem.noise)
    problem.data = X, Y
    return problem


ONE_LATENT = [
    name for name, one in LIKELIHOODS.items() if one.latents is None and name != "Gaussian"
]


def _state_space(rng: np.random.Generator) -> Outcome:
    """Bound, marginals and forecasts are those of the `CVIGP` with the same sites; also far away
    from the origin, and after `save` and `load`.
    """
    problem = _drawn(rng, "StateSpaceGP", [*ONE_LATENT, "Gaussian"])
    outcome = Outcome(f"state space: {problem.title}")
    near = problem.build()
    assert isinstance(near, StateSpaceGP)
    ConjugateComputation().run(near, steps=20)
    dense = CVIGP(near.data, near.kernel, near.likelihood, mean_function=near.mean_function)
    dense.basis.nu.assign(near.basis.nu)
    dense.basis.tau.assign(near.basis.tau)
    if not np.allclose(near.elbo(), dense.elbo(), rtol=_ROUND_OFF, atol=_ROUND_OFF):
        outcome.complaints.append(f"bound {near.elbo():.10g}, of a CVIGP {dense.elbo():.10g}")
    Xnew = _new_rows(rng, problem)
    outcome.complaints += _differences("CVIGP", near, dense, Xnew, _ROUND_OFF)
    outcome.complaints += _differences("loaded", near, _loaded(near), Xnew, 1e-12)
    outcome.complaints += _shifted(problem, near, Xnew)
    return outcome


def _shifted(problem: Problem, near: StateSpaceGP, Xnew: np.ndarray) -> list[str]:
    """Complaints of the same series on other dates."""
    if problem.mean not in ("none", "Zero", "Constant"):  # others mean something else there
        return []
    X, Y = near.data
    far = StateSpaceGP(
        (X.numpy() + _FAR, Y.numpy()),
        near.kernel,
        near.likelihood,
        mean_function=near.mean_function,
    )
    far.basis.nu.assign(near.basis.nu)
    far.basis.tau.assign(near.basis.tau)
    pairs = zip(near.predict_f(Xnew), far.predict_f(Xnew + _FAR))
    if all(np.allclose(one, other, rtol=1e-8, atol=1e-8) for one, other in pairs):
        return []
    return [f"predictions moved with the origin, by {_FAR:g}"]


def _neighbours(rng: np.random.Generator) -> Outcome:
    """With all rows as neighbours the predictions are those of the `CVIGP`; a row's are the same
    alone, and the model loads as it was saved.
    """
    problem = _drawn(rng, "NNGP", ONE_LATENT)
    outcome = Outcome(f"neighbours: {problem.title}")
    (X, Y), seed = problem.data, np.random.default_rng(problem.parts_seed)
    X = np.unique(X, axis=0)  # the jitter of two equal rows counts twice
    Y = Y[: len(X)]
    kernel, _ = draw_kernel(seed, 1.0, 1.0, X.shape[1], 1)
    make = LIKELIHOODS[problem.likelihood].make
    dense = CVIGP((X, Y), kernel, make(problem.noise))
    ConjugateComputation().run(dense, steps=200)
    ours = NNGP(
        (X, Y), kernel, make(problem.noise), num_neighbours=max(1, len(X) - 1),
        prediction_neighbours=len(X),
    )  # fmt: skip
    converged = SiteSweeps(ours, compile=False).run(60, tolerance=1e-6).converged
    Xnew = _new_rows(rng, problem)
    if converged:
        outcome.complaints += _differences("CVIGP", ours, dense, Xnew, _JITTER)
    else:
        outcome.title += " (not converged, which was said)"
    outcome.complaints += _differences("loaded", ours, _loaded(ours), Xnew, 1e-12)
    whole = np.asarray(ours.predict_f(Xnew)[0])
    alone = np.concatenate([np.asarray(ours.predict_f(row[None])[0]) for row in Xnew])
    if not np.allclose(whole, alone, rtol=1e-8, atol=1e-10):
        outcome.complaints.append("a row's mean depends on the other rows of the call")
    return outcome


def _integrals(rng: np.random.Generator) -> Outcome:
    """Expected log densities and log densities of a likelihood are those of its SciPy density."""
    name = str(rng.choice(list(DENSITIES)))
    choice, density = LIKELIHOODS[name], DENSITIES[name]
    mean, variance = float(rng.normal(0.0, 1.5)), float(10.0 ** rng.uniform(-4.0, 0.7))
    row = choice.observe(rng, np.array([[rng.normal()]]), 0.3)
    outcome = Outcome(f"integrals: {name} of {row[0]} at N({mean:.3g}, {variance:.3g})")
    likelihood = choice.make(0.3)
    arguments = np.zeros((1, 1)), np.array([[mean]]), np.array([[variance]]), row
    for verb, reference in (
        ("variational_expectations", expected_log_density),
        ("predict_log_density", log_expected_density),
    ):
        found = float(getattr(likelihood, verb)(*arguments)[0])
        expected = reference(density, mean, variance, row[0])
        if not np.isclose(found, expected, rtol=1e-6, atol=1e-6):
            outcome.complaints.append(f"{verb} is {found:.10g}, by quadrature {expected:.10g}")
    return outcome


def _new_rows(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """At the data, between, and beyond, as multiples of 2^-10."""
    X = problem.data[0]
    beyond = np.round(1024.0 * rng.uniform(-6.0, 6.0, (6, X.shape[1]))) / 1024.0
    return np.concatenate([X[:2], beyond])


def _differences(
    name: str, ours: GPModel, other: GPModel, Xnew: np.ndarray, slack: float
) -> list[str]:
    complaints = []
    for verb in ("predict_f", "predict_y"):
        found = zip(getattr(ours, verb)(Xnew), getattr(other, verb)(Xnew))
        for what, (one, two) in zip(("mean", "variance"), found):
            one, two = np.asarray(one), np.asarray(two)
            if not np.allclose(one, two, rtol=10.0 * slack, atol=slack, equal_nan=False):
                off = np.max(np.abs(one - two))
                complaints.append(f"the {what} of {verb} is off the {name} model's by {off:.3g}")
    return complaints


def _loaded(model: GPModel) -> GPModel:
    with tempfile.TemporaryDirectory() as folder:
        gd.save(model, Path(folder) / "model.zip")
        return gd.load(Path(folder) / "model.zip")


CHECKS: tuple[Check, ...] = (_integrals, _state_space, _integrals, _neighbours)


def run(case: Case) -> Outcome:
    """One of the checks, by turns."""
    return by_turns(CHECKS, case, may_refuse=True)


PART = Part(
    "oracles", "models of neighbours beside the dense one, likelihoods beside quadrature", 100, run
)
