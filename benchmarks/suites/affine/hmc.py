"""Marginals of Gaussian processes against the truth: total variation per site, affine-independent
and Gaussian KL.

The truth is a long run of NUTS (TensorFlow Probability) on whitened values, several chains from the
prior. The density of f_n is the average over draws of its density given all other values, which is
known on a grid. Kernels are fixed."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import norm

from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent

from ...harness.data import raw
from ...harness.machine import clock
from ...harness.nuts import nuts_draws
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

tfd = tfp.distributions
_GRID = 300
_AVERAGED = 1500
"""Draws per chain that the densities are averages over, evenly spaced."""
_JITTER = 1e-6
_BINS = 6
"""Bins of `coal`, of four months each, that are merged into one."""


class Problem(NamedTuple):
    """A model and the log density of its labels given f [C, N]: [C, N]."""

    name: str
    X: np.ndarray
    Y: np.ndarray
    kernel: gpflow.kernels.Kernel
    likelihood: gpflow.likelihoods.Likelihood
    log_label: Callable[[tf.Tensor], tf.Tensor]
    mean: float = 0.0


class Truth(NamedTuple):
    """Marginal densities by NUTS."""

    grid: np.ndarray
    """[N, G]"""
    density: np.ndarray
    """[N, G]"""
    noise: np.ndarray
    """[N]: half of the total variation between the two halves of the chains"""
    worst_r_hat: float
    least_effective: float


class Posterior(NamedTuple):
    """Both approximations of one problem beside the truth."""

    problem: str
    num_data: int
    chains: int
    draws: int
    worst_r_hat: float
    least_effective: float
    """draws of one value of f"""
    hmc_seconds: float
    affine_seconds: float
    gaussian_elbo: float
    affine_elbo: float
    gaussian: list[float]
    """total variation of each site"""
    affine: list[float]
    noise: list[float]
    shown: list[dict[str, Any]]
    """three sites with their densities on a grid"""


def measure(options: argparse.Namespace, name: str) -> list[Posterior]:
    """Run NUTS and both approximations on labels, or on the counts of coal."""
    return [_compare(_coal(options) if name == "coal" else _binary(name, options), options)]


def _binary(name: str, options: argparse.Namespace) -> Problem:
    """Some rows of a data set under a broad prior."""
    X, Y = raw(name, options.data)
    rows = np.random.default_rng(options.seed).permutation(len(X))[: options.gp_data]
    X, Y = X[rows].astype(float), np.asarray(Y, float).reshape(len(X), -1)[rows, :1]
    X = (X - X.mean(0)) / np.where(X.std(0) > 0.0, X.std(0), 1.0)
    kernel = gpflow.kernels.SquaredExponential(16.0, lengthscales=np.sqrt(X.shape[1]))
    return Problem(
        name, X, Y, kernel, BernoulliLogit(), lambda f: tfd.Bernoulli(logits=f).log_prob(Y[:, 0])
    )


def _coal(options: argparse.Namespace) -> Problem:
    """Disasters in coal mines, in bins of two years."""
    X, Y = raw("coal", options.data)
    count = len(X) // _BINS
    X, Y = (array[: count * _BINS, 0].astype(float).reshape(count, _BINS) for array in (X, Y))
    X, Y = X.mean(1, keepdims=True), Y.sum(1, keepdims=True)
    kernel, mean = gpflow.kernels.Matern32(1.0, lengthscales=5.0), float(np.log(Y.mean()))
    likelihood = gpflow.likelihoods.Poisson()
    return Problem(
        "coal", X, Y, kernel, likelihood, lambda f: tfd.Poisson(log_rate=f).log_prob(Y[:, 0]), mean
    )


def _compare(problem: Problem, options: argparse.Namespace) -> Posterior:
    began = clock()
    truth = _truth(problem, options.chains, options.draws, options.seed, jit=not options.no_jit)
    hmc_seconds, began = clock() - began, clock()
    model, gaussian = (_fitted(problem, base) for base in ("skew_normal", "normal"))
    affine = model.predict_f_density(problem.X, truth.grid).numpy()
    affine_seconds = clock() - began
    mean, variance = (part.numpy() for part in gaussian.predict_f(problem.X))
    symmetric = norm.pdf(truth.grid, mean, np.sqrt(variance))
    distances = [_total_variation(truth.grid, one, truth.density) for one in (symmetric, affine)]
    order = np.argsort(distances[0])
    shown = [
        {
            "site": int(n),
            "f": truth.grid[n].tolist(),
            "NUTS": truth.density[n].tolist(),
            "Gaussian": symmetric[n].tolist(),
            "affine-independent": affine[n].tolist(),
        }
        for n in (order[-1], order[3 * len(order) // 4], order[len(order) // 2])
    ]
    return Posterior(
        problem.name,
        len(problem.X),
        options.chains,
        options.draws,
        truth.worst_r_hat,
        truth.least_effective,
        hmc_seconds,
        affine_seconds,
        float(gaussian.elbo()),
        float(model.elbo()),
        *(one.tolist() for one in distances),
        truth.noise.tolist(),
        shown,
    )


def _fitted(problem: Problem, base: str) -> AffineIndependentGP:
    mean = gpflow.functions.Constant(problem.mean)
    model = AffineIndependentGP(
        (problem.X, problem.Y), problem.kernel, problem.likelihood, mean_function=mean, base=base
    )
    AffineIndependentAscent(1e-4).run(model)
    return model


def _truth(problem: Problem, chains: int, draws: int, seed: int, jit: bool) -> Truth:
    """NUTS on v of f = mean + L v. A third as many steps as draws come first, to adapt the step
    size, and are left out.
    """
    K = problem.kernel(problem.X).numpy() + _JITTER * np.eye(len(problem.X))
    root = tf.constant(np.linalg.cholesky(K))

    def values(v: tf.Tensor) -> tf.Tensor:
        return problem.mean + tf.matmul(v, root, transpose_b=True)

    def log_joint(v: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(problem.log_label(values(v)), axis=-1) - 0.5 * tf.reduce_sum(
            tf.square(v), axis=-1
        )

    start = tf.constant(np.random.default_rng(seed).standard_normal((chains, len(K))))
    v = nuts_draws(log_joint, start, draws, draws // 3, seed, jit)
    f = values(tf.reshape(v, [-1, len(K)])).numpy().reshape(draws, chains, len(K))
    r_hat = tfp.mcmc.potential_scale_reduction(tf.constant(f), split_chains=True).numpy()
    effective = tf.reduce_sum(tfp.mcmc.effective_sample_size(tf.constant(f)), axis=0).numpy()
    kept = f[:: max(1, draws // _AVERAGED)]
    grid = _grid(f.reshape(-1, len(K)))
    halves = [
        _densities(problem, K, part, grid)
        for part in (kept[:, : chains // 2], kept[:, chains // 2 :])
    ]
    noise = 0.5 * _total_variation(grid, *halves)
    return Truth(
        grid, 0.5 * (halves[0] + halves[1]), noise, float(r_hat.max()), float(effective.min())
    )


def _grid(f: np.ndarray) -> np.ndarray:
    """Grids [N, G] over the range of draws [S, N] and a standard deviation more on either side."""
    low, high, more = f.min(0), f.max(0), f.std(0)
    return np.linspace(low - more, high + more, _GRID, axis=1)


def _densities(problem: Problem, K: np.ndarray, f: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Averages over draws f [S, C, N] of p(f_n | all other values, y_n) on a grid [N, G]; a row per
    site, [N, G].
    """
    f = f.reshape(-1, len(K))
    P = np.linalg.inv(K)
    precision = np.diag(P)
    mean = f - (f - problem.mean) @ P / precision
    label = problem.log_label(tf.constant(grid.T)).numpy().T
    rows = []
    for n in range(len(K)):
        log_q = label[n] - 0.5 * precision[n] * (grid[n] - mean[:, n : n + 1]) ** 2
        q = np.exp(log_q - log_q.max(1, keepdims=True))
        rows.append(np.mean(q / q.sum(1, keepdims=True), axis=0) / (grid[n, 1] - grid[n, 0]))
    return np.stack(rows)


def _total_variation(grid: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Half the integral [N] of |p - q| over grids [N, G]."""
    return 0.5 * np.sum(np.abs(p - q), axis=1) * (grid[:, 1] - grid[:, 0])


def section(found: list[Posterior], _: argparse.Namespace) -> Section:
    """Distances of all sites, and three marginals per problem."""
    header = [
        "problem",
        "N",
        "method",
        "ELBO",
        "mean",
        "largest",
        "sites nearer to NUTS",
        "noise of NUTS",
    ]
    header += ["R-hat", "least effective draws", "NUTS s", "both fits s"]
    cells = []
    for one in found:
        wins = np.asarray(one.affine) < np.asarray(one.gaussian)
        for name, bound, distances, nearer in (
            ("Gaussian", one.gaussian_elbo, one.gaussian, ~wins),
            ("affine-independent", one.affine_elbo, one.affine, wins),
        ):
            cells.append(
                [
                    one.problem,
                    str(one.num_data),
                    name,
                    f"{bound:.3f}",
                    f"{np.mean(distances):.4f}",
                    f"{np.max(distances):.4f}",
                    f"{100.0 * np.mean(nearer):.0f} %",
                    f"{np.mean(one.noise):.4f}",
                    f"{one.worst_r_hat:.4f}",
                    f"{one.least_effective:.0f}",
                    f"{one.hmc_seconds:.0f}",
                    f"{one.affine_seconds:.0f}",
                ]
            )
    note = (
        "Against NUTS: total variation between marginals of f at the data, 0 to 1; seconds with"
        " compilation. "
    )
    note += "Noise: half of the distance between the two halves of the chains."
    caption = (
        "Total variation from NUTS site by site, and marginals of the worst site, the 75th"
        " percentile and the median."
    )
    figure = Figure(
        "affine_hmc", caption, [panel for one in found for panel in _panels(one)], columns=4
    )
    return Section([Table("Against long runs of NUTS", header, cells)], [figure], [note])


def _panels(one: Posterior) -> list[Panel]:
    order, places = np.argsort(one.gaussian), range(1, one.num_data + 1)
    lines = [
        Series(label, places, np.asarray(values)[order])
        for label, values in (("Gaussian", one.gaussian), ("affine-independent", one.affine))
    ]
    lines.append(Series("noise of NUTS", places, np.asarray(one.noise)[order], dashed=True))
    panels = [
        Panel(
            f"{one.problem}, {one.num_data} sites",
            "sites, by the Gaussian's",
            "total variation",
            lines,
        )
    ]
    for part in one.shown:
        curves = [
            Series(label, part["f"], part[label])
            for label in ("Gaussian", "affine-independent", "NUTS")
        ]
        panels.append(Panel(f"{one.problem}, site {part['site']}", "f", "density", curves))
    return panels


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """Labels and counts; without a data folder, labels alone."""
    return [("sonar",), ("coal",)] if options.data else [("breast_cancer_sklearn",)]


PART = Part(Posterior, _pieces, measure, section)
