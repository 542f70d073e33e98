"""Bounds of the log evidence of Gaussian observations: every lower one is below it, every certain
upper one above.

Loose bounds hide mistakes. So a third of the cases are sharp: points at all rows, neighbours that
are all earlier rows, exact coefficients, enough noise for jitter to be nothing; every bound must
then equal the evidence. In a third of the others Y = 0, so that log determinants and traces have
no misfit to hide behind.
"""

from __future__ import annotations

__all__ = ["PART"]

import math
from collections.abc import Iterator
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.config import Config, as_context
from gpflow.kernels import Kernel, SeparateIndependent

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.covariances.neighbourhoods import Conditioning
from gpflow_decoupled.inducing.variables import as_inducing
from gpflow_decoupled.models import NNGP, ODVGP, BasisGP
from gpflow_decoupled.models import evidence as interval
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters
from gpflow_decoupled.optimizers.data_mean.evidence import BOUNDS, evidence_bound

from ..checks import digits
from ..evidence import gaussian_evidence, quadrature_evidence
from ..ingredients import STATIONARY
from ..outcome import Case, Outcome, Part
from ..trial import refused


class Observations(NamedTuple):
    """Y [N, L] of latents with kernels of their own or one, and noise variances D [N, L]."""

    kernel: Kernel
    X: np.ndarray
    Y: np.ndarray
    noise: np.ndarray
    """Equal in all entries where there is one noise variance."""
    title: str
    sharp: bool
    """True if every bound with all rows must equal the evidence."""

    def slack(self) -> float:
        """How far sharp bounds may be below the evidence, in nats, and loose ones: infinity.

        With Q = K - e K (K + e I)^-1 for jitter e traces are at most e / noise a row, and the
        misfit grows by this share of itself.
        """
        if not self.sharp:
            return math.inf
        priors = [np.diagonal(K) for K in self.grams()]
        rounding = 1e3 * digits(self.X.dtype.type) * max(float(np.max(one)) for one in priors)
        uneven = max(float(np.ptp(one)) for one in priors)  # see `_digits`
        jitter = max(gpflow.config.default_jitter(), rounding, uneven)
        misfit = [
            y @ np.linalg.solve(K + np.diag(noise), y)
            for K, y, noise in zip(self.grams(), self.Y.T, self.noise.T, strict=True)
        ]
        return float(jitter / np.min(self.noise) * (self.Y.size + sum(misfit)))

    def evidence(self) -> tuple[float, float]:
        """The log evidence in nats, and how much of it round-off decides."""
        found = [
            gaussian_evidence(K, y, noise, self._digits(K))
            for K, y, noise in zip(self.grams(), self.Y.T, self.noise.T, strict=True)
        ]
        return sum(value for value, _ in found), sum(error for _, error in found)

    def _digits(self, K: np.ndarray) -> float:
        """Round-off of K, relative: distances of equal inputs are not quite zero, and in Matern12
        their square roots are 1e-3 in float32.
        """
        prior = np.diagonal(K)
        uneven = float(np.ptp(prior) / np.max(prior)) / len(K)  # of the diagonal alone
        return max(digits(self.X.dtype.type), uneven)

    def grams(self) -> list[np.ndarray]:
        """K [N, N] of each latent."""
        kernels = getattr(self.kernel, "kernels", [self.kernel] * self.Y.shape[1])
        return [np.asarray(kernel(self.X), np.float64) for kernel in kernels]


def _drawn(rng: np.random.Generator, dtype: type) -> Observations:
    sharp = rng.uniform() < 1.0 / 3.0
    rows, columns, latents = (int(rng.integers(*ends)) for ends in ((4, 50), (1, 4), (1, 4)))
    X = rng.normal(size=(rows, columns))
    if not sharp and rng.uniform() < 0.2:  # rows that are there twice
        X[rows // 2 :] = X[: rows - rows // 2]
    name = str(rng.choice(list(STATIONARY)))
    own = latents > 1 and rng.uniform() < 0.5
    made = [
        STATIONARY[name](float(10.0 ** rng.uniform(-1, 1)), 10.0 ** rng.uniform(-0.7, 0.7), columns)
        for _ in range(latents if own else 1)
    ]
    kernel = SeparateIndependent(made) if own else made[0]
    least = -2.0 if sharp else -3.0 if dtype is np.float32 else -6.0
    kind = str(rng.choice(["one noise", "weights", "sites"]))
    shape = {"one noise": (1, 1), "weights": (rows, 1), "sites": (rows, latents)}[kind]
    noise = np.broadcast_to(10.0 ** rng.uniform(least, 0.5, size=shape), (rows, latents))
    scale = 10.0 ** rng.uniform(-1, 1)  # of Y, which the model need not expect
    Y = scale * (np.sin(X @ rng.normal(size=(columns, latents))) + rng.normal(size=noise.shape))
    if not sharp and rng.uniform() < 1.0 / 3.0:
        Y = np.zeros_like(Y)
    title = f"{rows} rows, {latents} outputs, {kind}, {name}, {np.dtype(dtype).name}"
    title += ", sharp" if sharp else ""
    arrays = (np.ascontiguousarray(part, dtype) for part in (X, Y, noise))
    title += ", kernels of their own" if own else ""
    return Observations(kernel, *arrays, title, sharp)


def _at_coefficients(
    problem: Observations, Z: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, float]]:
    """The three bounds at coefficients that are exact, near or far, less their round-off.

    It is relative to their largest part, the residual in units of the noise, which far from the
    exact coefficients dwarfs the evidence.
    """
    rows, latents = problem.Y.shape
    near_by = 0.0 if problem.sharp else np.float64(rng.choice([0.0, 1e-3, 1.0]))
    columns = [
        np.linalg.solve(K + np.diag(noise), y)
        for K, y, noise in zip(problem.grams(), problem.Y.T, problem.noise.T, strict=True)
    ]
    exact = np.stack(columns, axis=1)
    a = exact * (1.0 + near_by * rng.normal(size=exact.shape))
    products = [K @ one for K, one in zip(problem.grams(), a.T, strict=True)]
    residual = problem.Y - np.stack(products, axis=1) - problem.noise * a
    largest = float(np.sum(residual**2 / problem.noise))
    points = as_inducing(Z, "beta", problem.kernel)
    likelihood = gpflow.likelihoods.Gaussian(1.0)
    model = ODVGP(problem.kernel, likelihood, "data", points, num_latent_gps=latents)
    mean = model.basis.data_mean
    mean.set_data(problem.X)
    order = rng.permutation(rows)
    most = rows if problem.sharp else int(rng.integers(1, rows))
    near = np.full((rows, most), -1, np.int32)
    for place, row in enumerate(order):  # any of the earlier ones will do
        chosen = rng.permutation(order[:place])[:most]
        near[row, : len(chosen)] = chosen
    given = Conditioning(tf.range(rows), tf.constant(near[None]))
    weights = 1.0 / problem.noise
    for bound in BOUNDS:
        value = evidence_bound(
            problem.kernel, model.basis.beta, mean, tf.constant(problem.Y), tf.constant(weights),
            tf.constant(a.astype(problem.X.dtype)), bound=bound, given=given,
        )  # fmt: skip
        yield f"{bound} at coefficients", float(value) - _rounding(problem, largest)


def _of_models(
    problem: Observations, Z: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, float]]:
    """Bounds of models with one noise variance; certain upper ends have the name "upper"."""
    data, latents = (problem.X, problem.Y), problem.Y.shape[1]
    likelihood = gpflow.likelihoods.Gaussian(problem.noise[0, 0], variance_lower_bound=0.0)
    for bound in ("classical", "tight"):
        basis = CoupledBasis(as_inducing(Z, "beta", problem.kernel), latents)
        model = BasisGP(problem.kernel, likelihood, basis, num_data=len(problem.X), bound=bound)
        yield f"collapsed, {bound}", float(collapsed_elbo(model, data))
        basis.q_mu.assign(rng.normal(size=basis.q_mu.shape))
        yield f"elbo anywhere, {bound}", float(model.elbo(data))
        optimal_parameters(model, data).assign(model)
        yield f"elbo at the best q, {bound}", float(model.elbo(data))
    if problem.sharp:  # of the model with jitter
        return
    neighbours = NNGP(data, problem.kernel, likelihood, num_neighbours=3)
    many, interval.EXACT_ROWS = interval.EXACT_ROWS, 0
    try:
        of_data = model.evidence(data, num_neighbours=int(rng.integers(1, 20)))
        # the jitter of an NNGP is noise, so that its evidence is another
        yield "interval, lower", of_data.lower
        yield "interval, upper", of_data.upper
        found = neighbours.evidence(num_neighbours=5)
    finally:
        interval.EXACT_ROWS = many
    exact = neighbours.evidence()
    assert exact.lower_by == "exact"
    yield "NNGP, lower", found.lower - exact.lower
    yield "NNGP, upper", found.upper - exact.upper


def _labels(rng: np.random.Generator) -> Outcome:
    """The tight bound of labels and counts, against the evidence by quadrature."""
    rows = int(rng.integers(1, 4))
    X = rng.normal(size=(rows, 1))
    kernel = STATIONARY["Matern52"](10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-0.7, 0.7), 1)
    f = 2.0 * rng.normal(size=(rows, 1))
    name, likelihood, Y = [
        ("labels, logit", gd.likelihoods.BernoulliLogit(), (f > 0).astype(float)),
        ("labels, probit", gd.likelihoods.BernoulliProbit(), (f > 0).astype(float)),
        ("counts", gpflow.likelihoods.Poisson(), rng.poisson(np.exp(f)).astype(float)),
        ("Laplace noise", gd.likelihoods.Laplace(float(rng.uniform(0.1, 1.0))), f),
    ][int(rng.integers(4))]
    outcome = Outcome(f"tight bound of {name}, {rows} rows", figures={"bounds": 2})
    basis = CoupledBasis(X[: int(rng.integers(1, rows + 1))] + 0.1 * rng.normal())
    model = BasisGP(kernel, likelihood, basis, num_data=rows, bound="tight")

    def log_density(f: np.ndarray) -> np.ndarray:
        each = [likelihood.log_prob(X[n][None], f[:, n, None], Y[n][None]) for n in range(rows)]
        return np.sum([np.asarray(one) for one in each], axis=0)

    evidence, error = quadrature_evidence(np.asarray(kernel(X)), np.zeros(rows), log_density)
    for steps in (0, 1):  # anywhere, and near the best q
        basis.q_mu.assign(rng.normal(size=basis.q_mu.shape))
        for _ in range(steps):
            NaturalGradient(0.5).minimize(model, (X, Y))
        over = float(model.elbo((X, Y))) - evidence
        if error < 1e-2 and not over <= error + 1e-6 * max(1.0, abs(evidence)):
            outcome.complaints.append(f"the bound is {over:.3g} above the evidence {evidence:.10g}")
    return outcome


def _complaints(problem: Observations, found: list[tuple[str, float]]) -> list[str]:
    evidence, error = problem.evidence()
    if not np.isfinite(error):  # singular to round-off
        return []
    # each bound is a sum of N terms, with the round-off of its largest part
    allowed = error + _rounding(problem, max(1.0, abs(evidence)) + problem.Y.size)
    squares = 10.0 * digits(problem.X.dtype.type) * float(np.sum(problem.Y**2 / problem.noise))
    slack, complaints = problem.slack(), []
    for name, value in found:
        true = 0.0 if name.startswith("NNGP") else evidence
        over = true - value if name.endswith("upper") else value - true
        # the best q's bound is a difference of sums of squares
        room = allowed + (squares if "collapsed" in name or "best q" in name else 0.0)
        if not over <= room:
            side = "below" if name.endswith("upper") else "above"
            complaints.append(f"{name} is {over:.3g} {side} the evidence {evidence:.10g}")
        elif "anywhere" not in name and over < -room - slack:
            complaints.append(f"{name} is {-over:.3g} short of the evidence {evidence:.10g}")
    return complaints


def _rounding(problem: Observations, size: float) -> float:
    """Round-off of a sum whose largest part has this size."""
    return 1e3 * digits(problem.X.dtype.type) * size


def run(case: Case) -> Outcome:
    """One random problem, and all its bounds."""
    rng = case.generator()
    dtype = np.float32 if rng.uniform() < 0.4 else np.float64
    title = f"case {case.number}"
    try:
        if case.number % 10 == 9:
            return _labels(rng)
        with as_context(Config(float=dtype)):
            problem = _drawn(rng, dtype)
            title = problem.title
            count = int(rng.integers(1, len(problem.X)))
            # not on rows that are there twice
            Z = problem.X[: len(problem.X) // 2][:count] + dtype(0.01)
            Z = problem.X if problem.sharp else Z
            found = list(_at_coefficients(problem, Z, rng))
            if np.all(problem.noise == problem.noise[0, 0]):
                found += _of_models(problem, Z, rng)
            return Outcome(title, _complaints(problem, found), figures={"bounds": len(found)})
    except Exception as error:
        return refused(title, error)


PART = Part(
    "evidence_bounds",
    "bounds of the evidence: weights, labels, outputs, both precisions",
    500,
    run,
)
