"""Affine-independent inference: what it gains over the best Gaussian, and the three routes to its integrals.

Gain: logistic regression with skew-normal base variables, after Figure 4 of Challis & Barber 2012. Weights and labels are
drawn from the model, and each number of observations has its own data in each model. Routes: the sum over logistic sites by
lattices, by products of characteristic functions, and by frequency sums; the truth is the second with many points.
"""

from __future__ import annotations

__all__ = ["PARTS", "Gain", "Route", "add_arguments", "gain", "route", "run"]

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import expit
from tqdm.auto import tqdm

from gpflow_decoupled.distributions import base_variable
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.likelihoods.fourier_sites import logistic_site
from gpflow_decoupled.linalg.fourier import Variables, expectation
from gpflow_decoupled.linalg.projections import Projections
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent
from gpflow_decoupled.optimizers.affine_result import AffineTrace
from gpflow_decoupled.optimizers.gaussian_kl import GaussianProblem

from .report import Figure, Panel, Report, Series, Table, write

PARTS = ("gain", "routes")
SETTINGS = (
    *(("lattice", size) for size in (256, 1024, 4096)),
    *(("spectral", size) for size in (128, 256, 512, 1024)),
    *(("frequency_sum", size) for size in (16, 32, 48, 64)),
)
_NAMES = {"lattice": "R1, lattice", "spectral": "R2, spectral", "frequency_sum": "R3, frequency sum"}
_SLOPE, _VARIANCE = 5.0, 5.0
_TEST_ROWS = 500
_TRUTH = 2**14
"""Points."""
_TOLERANCE = 1e-5
"""Nats, of the Gaussian."""


@dataclass
class Gain:
    """Both posteriors of one data set; bounds in nats, test log probability in nats a label."""

    num_data: int
    model: int
    gaussian: float
    affine: float
    gaussian_test: float
    affine_test: float
    gaussian_seconds: float
    affine_seconds: float
    """from the prior: the Gaussian, which it starts from, is in it; compilation is in neither"""
    compile_seconds: float
    evaluations: int


@dataclass
class Route:
    """One route with one number of points or frequencies."""

    route: str
    size: int
    error: float
    """of the sum over sites, in nats"""
    ms: float
    """of its value and gradient"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--models", type=int, default=15, help="of each number of observations")
    parser.add_argument("--sizes", nargs="+", type=int, default=[5, 10, 20, 40, 70, 100], help="observations")
    parser.add_argument("--weights", type=int, default=10, help="D of the gain")
    parser.add_argument("--sites", type=int, default=64, help="N of the routes")
    parser.add_argument("--dimensions", type=int, default=16, help="D of the routes")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median time is reported")


def gain(num_data: int, num_weights: int, seed: int) -> Gain:
    """The best Gaussian and the best skew-normal posterior of one drawn data set."""
    rng = np.random.default_rng([seed, num_data])
    w = np.sqrt(_VARIANCE) * rng.standard_normal(num_weights)
    X = _SLOPE * rng.standard_normal((num_data + _TEST_ROWS, num_weights))
    Y = (rng.uniform(size=len(X)) < expit(X @ w)).astype(float)[:, None]
    train, test = (X[:num_data], Y[:num_data]), (tf.constant(X[num_data:]), tf.constant(Y[num_data:]))
    prior = tfp.distributions.MultivariateNormalDiag(np.zeros(num_weights), np.sqrt(_VARIANCE) * np.ones(num_weights))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is constant")  # few labels may agree
        model = AffineIndependentGLM(train, BernoulliLogit(), prior=prior, intercept=False)
    result = AffineIndependentAscent().run(model)
    affine_test = float(tf.reduce_mean(model.predict_log_density(test)))
    gaussian_test = _gaussian_test(model, test)
    return Gain(
        num_data,
        seed,
        result.gaussian_elbo,
        result.elbo,
        gaussian_test,
        affine_test,
        result.gaussian_seconds,
        result.seconds - result.tracing_seconds,
        result.tracing_seconds,
        result.evaluations,
    )


def _gaussian_test(model: Any, test: tuple) -> float:
    """The mean test log probability of the best Gaussian; the model is left at it."""
    basis = model.basis
    problem = GaussianProblem(model.site_groups(), basis.gaussian, 0.0, model.integration, AffineTrace())
    found = problem.solve(_TOLERANCE, 2000)
    basis.assign_base("normal")
    basis.map.assign_matrix(found.root)
    basis.b.assign(found.b)
    return float(tf.reduce_mean(model.predict_log_density(test)))


def routes(sites: int, dimensions: int, rounds: int, seed: int) -> list[Route]:
    """Every setting on the same random projections."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.standard_normal((sites, dimensions)), rng.standard_normal(sites)
    parts = [tf.constant(part) for part in (alpha, beta, 2.0 * rng.standard_normal((dimensions, 1)))]
    kappa = tf.constant(np.where(rng.uniform(size=sites) < 0.5, 1.0, -1.0))
    truth = route("spectral", _TRUTH, parts, kappa)()[0]
    found = []
    for name, size in tqdm(SETTINGS):
        function = route(name, size, parts, kappa)
        value = function()[0]
        times = []
        for _ in range(rounds):
            began = time.process_time()
            function()
            times.append(1e3 * (time.process_time() - began))
        found.append(Route(name, size, abs(float(value - truth)), float(np.median(times))))
    return found


def route(name: str, size: int, parts: list[tf.Tensor], kappa: tf.Tensor) -> Callable[[], tuple]:
    """A compiled function for the sum over sites and its gradient in alpha, beta and the shapes."""
    base = base_variable("skew_normal")
    variables = Variables(base.characteristic, base.cdf, base.work)
    site = logistic_site(kappa)
    R = tf.reduce_max(base.tail(parts[2]))

    def both(*inputs: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(expectation(variables, Projections(*inputs), site, R, name, size))
        return value, *tape.gradient(value, inputs)

    compiled: Any = tf.function(both, autograph=False)
    return lambda: [part.numpy() for part in compiled(*parts)]


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Measure the parts, and write the report after each."""
    gains: list[Gain] = []
    times: list[Route] = []
    if "routes" in options.parts:
        times = routes(options.sites, options.dimensions, options.rounds, options.seed)
        write(folder, _report(gains, times, command))
    if "gain" in options.parts:
        seeds = range(options.seed, options.seed + options.models)
        for seed, size in tqdm([(seed, size) for seed in seeds for size in options.sizes]):
            gains.append(gain(size, options.weights, seed))
            if size == options.sizes[-1]:
                write(folder, _report(gains, times, command))
    return _rows(gains, times)


def _rows(gains: list[Gain], times: list[Route]) -> list[dict[str, Any]]:
    return [{"part": "gain", **asdict(one)} for one in gains] + [{"part": "routes", **asdict(one)} for one in times]


def _report(gains: list[Gain], times: list[Route], command: str) -> Report:
    tables, panels = [], []
    if gains:
        sizes = list(dict.fromkeys(one.num_data for one in gains))
        groups = [[one for one in gains if one.num_data == size] for size in sizes]
        header = ["N", "models", "Gaussian bound", "AI - Gaussian, bound", "AI - Gaussian, test log probability"]
        header += ["Gaussian s", "AI s", "AI evaluations", "compilation s"]
        tables.append(Table("Gain over the best Gaussian", header, [_gain_row(group) for group in groups]))
        panels += [
            _difference_panel("Bound", "AI - Gaussian, nats", sizes, [_bounds(group) for group in groups]),
            _difference_panel("Test labels", "AI - Gaussian, nats a label", sizes, [_tests(group) for group in groups]),
        ]
    if times:
        cells = [[_NAMES[one.route], str(one.size), f"{one.error:.1e}", f"{one.ms:.1f}"] for one in times]
        header = ["route", "points or frequencies", "error of the sum, nats", "value and gradient ms"]
        tables.append(Table("Routes", header, cells))
        panels.append(Panel("Routes", "value and gradient, ms", "error of the sum, nats", _lines(times), log="xy"))
    caption = "Gain over the best Gaussian, mean and standard errors over models; error and time of the three routes."
    notes = [
        "AI seconds include the Gaussian stage; compilation, once a model, is apart.",
        "Milliseconds of the processor; errors below 1e-12 are drawn there.",
    ]
    figures = [Figure("affine", caption, panels)]
    return Report("affine", "Affine-independent KL inference", command, _rows(gains, times), tables, figures, notes)


def _bounds(group: list[Gain]) -> np.ndarray:
    return np.array([one.affine - one.gaussian for one in group])


def _tests(group: list[Gain]) -> np.ndarray:
    return np.array([one.affine_test - one.gaussian_test for one in group])


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _gain_row(group: list[Gain]) -> list[str]:
    bounds, tests = _bounds(group), _tests(group)
    medians = [
        np.median([getattr(one, name) for one in group])
        for name in ("gaussian_seconds", "affine_seconds", "evaluations", "compile_seconds")
    ]
    return [
        str(group[0].num_data),
        str(len(group)),
        f"{np.mean([one.gaussian for one in group]):.2f}",
        f"{np.mean(bounds):.3f} +- {_standard_error(bounds):.3f}",
        f"{np.mean(tests):.4f} +- {_standard_error(tests):.4f}",
        f"{medians[0]:.3f}",
        f"{medians[1]:.2f}",
        f"{medians[2]:.0f}",
        f"{medians[3]:.1f}",
    ]


def _difference_panel(title: str, ylabel: str, sizes: list[int], values: list[np.ndarray]) -> Panel:
    mean = np.array([np.mean(one) for one in values])
    error = np.array([_standard_error(one) for one in values])
    lines = [
        Series("mean over models", sizes, mean),
        Series("one standard error below and above", sizes, mean - error, dashed=True),
        Series("one standard error below and above", sizes, mean + error, dashed=True),
    ]
    return Panel(title, "observations", ylabel, lines)


def _lines(times: list[Route]) -> list[Series]:
    lines = []
    for name in dict.fromkeys(one.route for one in times):
        mine = [one for one in times if one.route == name]
        lines.append(Series(_NAMES[name], [one.ms for one in mine], [max(one.error, 1e-12) for one in mine]))
    return lines
