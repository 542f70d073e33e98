"""Three problems of two weights after Figures 1 to 3 of Challis & Barber (2012): log Z by
quadrature, and bounds below it.

Sparse linear regression and regression with Laplace noise have a generalised normal base, logistic
regression a skew-normal one. The paper does not print its data; these are our own."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
import warnings
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow_probability as tfp
from scipy.special import expit, log_expit, logsumexp

from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent, JaakkolaJordan, MixtureAscent

from ...harness.report import Section, Table
from ...harness.runner import Part

tfd = tfp.distributions
_PRIOR_SCALE, _VARIANCE, _NOISE_SCALE, _SLOPE = 0.16, 0.05, 0.1581, 5.0
_BROAD = 10.0
_COMPONENTS = 3
"""Of the mixture of Gaussians."""
_LINES = 2001
"""Lines of the grid in each direction."""


class Problem(NamedTuple):
    """Data, model, and the log of the unnormalised posterior."""

    name: str
    data: tuple[np.ndarray, np.ndarray]
    likelihood: gpflow.likelihoods.Likelihood
    prior: tfd.Distribution
    base: str
    log_joint: Callable[[np.ndarray], np.ndarray]
    """w [S, 2] -> log p(y, w) [S]"""
    reach: float
    """both weights lie between -reach and reach under the posterior"""


class Toy(NamedTuple):
    """The bounds of one problem and its log Z, in nats."""

    problem: str
    log_evidence: float
    affine: float
    gaussian: float
    local: float
    """the bound of Jaakkola & Jordan; NaN where it does not apply"""
    evaluations: int
    base: str
    mixture: float = float("nan")
    """the bound of a mixture of three Gaussians"""
    mixture_estimate: float = float("nan")
    """the same with the entropy of that mixture estimated from draws"""


def sparse(x: list[float], y: float) -> Problem:
    """One observation, and a Laplace prior."""
    X, Y = np.array([x]), np.array([[y]])

    def log_joint(w: np.ndarray) -> np.ndarray:
        noise = -0.5 * np.sum((w @ X.T - Y.T) ** 2, axis=1) / _VARIANCE - 0.5 * np.log(
            2.0 * np.pi * _VARIANCE
        )
        return noise - np.sum(np.abs(w), axis=1) / _PRIOR_SCALE - 2.0 * np.log(2.0 * _PRIOR_SCALE)

    prior = tfd.Laplace(np.float64(0.0), np.float64(_PRIOR_SCALE))
    name = f"sparse prior, x = ({x[0]}, {x[1]})"
    return Problem(
        name,
        (X, Y),
        gpflow.likelihoods.Gaussian(_VARIANCE),
        prior,
        "generalized_normal",
        log_joint,
        3.0,
    )


def logistic(seed: int) -> Problem:
    """Four labels of a steep logistic function, and a broad Gaussian prior."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4, 2))
    w = np.sqrt(_BROAD) * rng.standard_normal(2)
    Y = (rng.uniform(size=4) < expit(_SLOPE * X @ w)).astype(float)[:, None]
    X = _SLOPE * X

    def log_joint(w: np.ndarray) -> np.ndarray:
        labels = np.sum(log_expit((2.0 * Y.T - 1.0) * (w @ X.T)), axis=1)
        return labels - 0.5 * np.sum(w**2, axis=1) / _BROAD - np.log(2.0 * np.pi * _BROAD)

    prior = tfd.MultivariateNormalDiag(np.zeros(2), np.sqrt(_BROAD) * np.ones(2))
    return Problem(
        f"logistic, seed {seed}", (X, Y), BernoulliLogit(), prior, "skew_normal", log_joint, 22.0
    )


def robust() -> Problem:
    """Two observations with Laplace noise."""
    X, Y = np.array([[1.0, 0.3], [-0.4, 1.0]]), np.array([[1.2], [-1.6]])

    def log_joint(w: np.ndarray) -> np.ndarray:
        noise = np.sum(-np.abs(w @ X.T - Y.T) / _NOISE_SCALE - np.log(2.0 * _NOISE_SCALE), axis=1)
        return noise - 0.5 * np.sum(w**2, axis=1) - np.log(2.0 * np.pi)

    prior = tfd.MultivariateNormalDiag(np.zeros(2), np.ones(2))
    return Problem(
        "Laplace noise", (X, Y), Laplace(_NOISE_SCALE), prior, "generalized_normal", log_joint, 6.0
    )


PROBLEMS: tuple[Callable[[], Problem], ...] = (
    lambda: sparse([0.1, 1.0], 1.0),
    lambda: sparse([0.8, 0.5], 0.5),
    lambda: logistic(0),
    lambda: logistic(1),
    lambda: logistic(2),
    robust,
)


def measure(options: argparse.Namespace, place: int) -> list[Toy]:
    """One of the problems."""
    return [_toy(PROBLEMS[place]())]


def _toy(problem: Problem) -> Toy:
    """All bounds of a problem."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is one observation")  # as in the paper
        warnings.filterwarnings("ignore", message=".* is constant")
        model = AffineIndependentGLM(
            problem.data,
            problem.likelihood,
            prior=problem.prior,
            intercept=False,
            base=problem.base,
        )
    result = AffineIndependentAscent().run(model)
    mixture = MixtureAscent(_COMPONENTS).run(model)
    local = (
        JaakkolaJordan().run(model).elbo
        if isinstance(problem.likelihood, BernoulliLogit)
        else float("nan")
    )
    return Toy(
        problem.name,
        evidence(problem),
        result.elbo,
        result.gaussian_elbo,
        local,
        result.evaluations,
        problem.base,
        mixture.elbo,
        mixture.elbo_estimate,
    )


def evidence(problem: Problem) -> float:
    """Log Z by the midpoint rule, row by row of a grid."""
    line = np.linspace(-problem.reach, problem.reach, _LINES)
    rows = [
        logsumexp(problem.log_joint(np.stack([np.full(_LINES, first), line], 1))) for first in line
    ]
    return float(logsumexp(rows) + 2.0 * np.log(line[1] - line[0]))


def section(toys: list[Toy], _: argparse.Namespace) -> Section:
    """A row per problem: the bounds and log Z."""
    cells = [
        [
            one.problem,
            one.base,
            f"{one.local:.4f}" if np.isfinite(one.local) else "-",
            f"{one.gaussian:.4f}",
            f"{one.mixture:.4f}",
            f"{one.mixture_estimate:.3f}",
            f"{one.affine:.4f}",
            f"{one.log_evidence:.4f}",
            str(one.evaluations),
        ]
        for one in toys
    ]
    header = [
        "problem",
        "base",
        "Jaakkola & Jordan",
        "Gaussian",
        "mixture",
        "mixture, entropy estimated",
    ]
    header += ["AI", "log Z", "evaluations"]
    note = (
        f"Two weights: nats; log Z by quadrature; mixture: of {_COMPONENTS} Gaussians, with a lower"
        " bound of its entropy."
    )
    return Section([Table("Two weights", header, cells)], [], [note])


PART = Part(
    Toy,
    lambda options: [(place,) for place in range(len(PROBLEMS[: options.problems]))],
    measure,
    section,
)
