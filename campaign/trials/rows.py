"""Rows of a call: companions that are extreme, and inputs far from the origin, change no row."""

from __future__ import annotations

__all__ = ["PART"]

from collections.abc import Callable
from functools import partial

import gpflow
import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.covariances.stationary import covariance
from gpflow_decoupled.likelihoods import observation_moments

from ..outcome import Case, Outcome, Part
from ..problems.likelihoods import LIKELIHOODS as CHOICES
from ..references import DENSITIES
from ..turns import Check, by_turns

LIKELIHOODS: dict[str, Callable[[], gpflow.likelihoods.Likelihood]] = {
    "CategoricalLogit": lambda: gd.likelihoods.CategoricalLogit(3),
    "BernoulliLogit": gd.likelihoods.BernoulliLogit,
    "NegativeBinomial": gd.likelihoods.NegativeBinomial,
    "Laplace": gd.likelihoods.Laplace,
    "StudentT": gpflow.likelihoods.StudentT,
    "Poisson": gpflow.likelihoods.Poisson,
    "Ordinal": lambda: gd.likelihoods.Ordinal([-1.0, 0.5, 2.0]),
    **{name: partial(CHOICES[name].make, 0.3) for name in DENSITIES},
}
KERNELS = (
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern32,
    gpflow.kernels.Matern52,
    gpflow.kernels.RationalQuadratic,
)


def _companions(rng: np.random.Generator) -> Outcome:
    """Each predict verb gives a row the same numbers alone and beside any other row."""
    name = str(rng.choice(list(LIKELIHOODS)))
    likelihood = LIKELIHOODS[name]()
    latents = likelihood.latent_dim or 1
    row = rng.normal(size=latents), 10.0 ** rng.uniform(-3.0, 2.0, latents)
    far = 10.0 ** rng.uniform(-2.0, 5.0) * rng.normal(size=latents)
    beside = far, 10.0 ** rng.uniform(-12.0, 12.0, latents)
    outcome = Outcome(f"companions: {name} at {row} beside {beside}")
    alone = _verbs(likelihood, *(part[None] for part in row))
    pair = _verbs(likelihood, *(np.stack(both) for both in zip(beside, row)))
    for one, other in zip(alone, pair):
        if not np.allclose(other[-1], one[-1], rtol=1e-8, atol=1e-12):
            outcome.complaints.append(f"{one[-1]} became {other[-1]}")
    return outcome


def _verbs(
    likelihood: gpflow.likelihoods.Likelihood, mean: np.ndarray, variance: np.ndarray
) -> list[np.ndarray]:
    numbered = isinstance(likelihood, gd.likelihoods.NumberedLikelihood)
    X, Y = np.zeros((len(mean), 1)), np.ones((len(mean), 1 + numbered))
    found = [
        likelihood.predict_log_density(X, mean, variance, Y),
        likelihood.variational_expectations(X, mean, variance, Y),
        *observation_moments(likelihood, X, mean, variance),
    ]
    return [np.asarray(part) for part in found]


def _offsets(rng: np.random.Generator) -> Outcome:
    """Covariances are the same wherever the origin is, up to 2^30 in double precision."""
    kind = KERNELS[rng.integers(len(KERNELS))]
    kernel = kind(lengthscales=float(10.0 ** rng.uniform(-1.0, 1.0)))
    if rng.random() < 0.5:
        kernel = kernel * gpflow.kernels.Matern52() + gpflow.kernels.Constant(0.3)
    X = rng.integers(-2048, 2048, size=(12, int(rng.integers(1, 4)))) / 1024.0
    offset = float(2.0 ** rng.integers(10, 31))
    outcome = Outcome(f"offset {offset:g}: {type(kernel).__name__} of {kind.__name__}")
    near, far = (np.asarray(covariance(kernel, Z[:5], Z)) for Z in (X, X + offset))
    if not np.allclose(near, far, rtol=1e-8, atol=1e-8):
        outcome.complaints.append(f"the covariance moved by {np.max(np.abs(near - far)):.3g}")
    return outcome


def _far_inputs(rng: np.random.Generator) -> Outcome:
    """An input far away, new or a row of the data, changes no other prediction."""
    kind = KERNELS[rng.integers(len(KERNELS))]
    name = str(rng.choice(["CVIGP", "NNGP", "NNGP on data"]))
    X, Xnew = (rng.uniform(-2.0, 2.0, size=(rows, 2)) for rows in (20, 5))
    Y, row = rng.normal(size=(20, 1)), 10.0 ** rng.uniform(7.0, 12.0) * rng.choice([-1, 1], (1, 2))
    outcome = Outcome(f"an input at {row}: {name}, {kind.__name__}")
    model = _owner(name, kind(), X, Y)
    alone = np.stack(model.predict_f(Xnew))
    beside = np.stack(model.predict_f(np.concatenate([row, Xnew])))[:, 1:]
    data = np.concatenate([row, X]), np.concatenate([[[0.0]], Y])
    of_more = np.stack(_owner(name, kind(), *data).predict_f(Xnew))
    for words, found in (("new", beside), ("of the data", of_more)):
        if not np.allclose(found, alone, rtol=1e-6, atol=1e-6):
            moved = np.max(np.abs(found - alone))
            outcome.complaints.append(f"beside a row {words} predictions moved by {moved:.3g}")
    return outcome


def _owner(
    name: str, kernel: gpflow.kernels.Kernel, X: np.ndarray, Y: np.ndarray
) -> gpflow.models.GPModel:
    noise = gpflow.likelihoods.Gaussian(0.1)
    if name == "CVIGP":
        model = gd.models.CVIGP((X, Y), kernel, noise)
        gd.optimizers.ConjugateComputation().run(model)
        return model
    mean = "neighbours" if name == "NNGP" else "data"
    model = gd.models.NNGP((X, Y), kernel, noise, num_neighbours=6, mean=mean)
    if mean == "data":
        model.solve_mean(tolerance=1e-14)
    return model


CHECKS: tuple[Check, ...] = (_companions, _offsets, _far_inputs)


def run(case: Case) -> Outcome:
    """One of the checks, by turns."""
    return by_turns(CHECKS, case, may_refuse=False)


PART = Part("rows", "companions in a call, and inputs far from the origin", 100, run)
