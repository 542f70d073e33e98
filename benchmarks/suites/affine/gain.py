"""What skew-normal base variables gain over the best Gaussian, after Figure 4 of Challis & Barber
(2012).

The model is logistic regression, whose weights and labels are drawn; each number of observations
has its own data. Beside both bounds stands the local bound of Jaakkola & Jordan, which is below the
Gaussian one."""

from __future__ import annotations

__all__ = ["PART", "logistic"]

import argparse
import warnings
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import expit

from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent, JaakkolaJordan

from ...harness.metrics import mean_and_error, standard_error
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

_SLOPE, _VARIANCE = 5.0, 5.0
_TEST_ROWS = 500


class Gain(NamedTuple):
    """The posteriors of one data set; bounds in nats, test log probability in nats per label."""

    num_data: int
    model: int
    local: float
    """the bound of Jaakkola & Jordan"""
    gaussian: float
    affine: float
    gaussian_test: float
    affine_test: float
    gaussian_seconds: float
    affine_seconds: float
    """from the prior, so that those of the Gaussian, which it starts from, are part of them;
    without compilation
    """
    compile_seconds: float
    evaluations: int


def _pieces(options: argparse.Namespace) -> list[tuple]:
    seeds = range(options.seed, options.seed + options.models)
    return [(size, seed) for seed in seeds for size in options.sizes]


def measure(options: argparse.Namespace, size: int, seed: int) -> list[Gain]:
    """One number of observations in one drawn model."""
    return [_gain(size, options.weights, seed)]


def logistic(
    num_data: int, num_weights: int, seed: int
) -> tuple[AffineIndependentGLM, tuple[tf.Tensor, tf.Tensor]]:
    """A model with skew-normal base variables on drawn data, and test data."""
    rng = np.random.default_rng([seed, num_data])
    w = np.sqrt(_VARIANCE) * rng.standard_normal(num_weights)
    X = _SLOPE * rng.standard_normal((num_data + _TEST_ROWS, num_weights))
    Y = (rng.uniform(size=len(X)) < expit(X @ w)).astype(float)[:, None]
    train, test = (
        (X[:num_data], Y[:num_data]),
        (tf.constant(X[num_data:]), tf.constant(Y[num_data:])),
    )
    prior = tfp.distributions.MultivariateNormalDiag(
        np.zeros(num_weights), np.sqrt(_VARIANCE) * np.ones(num_weights)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".* is constant"
        )  # few labels may all be the same
        return AffineIndependentGLM(train, BernoulliLogit(), prior=prior, intercept=False), test


def _gain(num_data: int, num_weights: int, seed: int) -> Gain:
    """The best Gaussian and the best skew-normal posterior of one drawn data set, and the local
    bound.
    """
    model, test = logistic(num_data, num_weights, seed)
    result = AffineIndependentAscent().run(model)
    affine_test = float(tf.reduce_mean(model.predict_log_density(test)))
    local = JaakkolaJordan().run(model).elbo  # sets a normal base
    AffineIndependentAscent().run(model)
    return Gain(
        num_data,
        seed,
        local,
        result.gaussian_elbo,
        result.elbo,
        float(tf.reduce_mean(model.predict_log_density(test))),
        affine_test,
        result.gaussian_seconds,
        result.seconds - result.tracing_seconds,
        result.tracing_seconds,
        result.evaluations,
    )


def section(gains: list[Gain], _: argparse.Namespace) -> Section:
    """Differences by the number of observations."""
    sizes = list(dict.fromkeys(one.num_data for one in gains))
    groups = [[one for one in gains if one.num_data == size] for size in sizes]
    header = ["N", "models", "local bound - Gaussian", "Gaussian bound", "AI - Gaussian, bound"]
    header += [
        "AI - Gaussian, test log probability",
        "Gaussian s",
        "AI s",
        "AI evaluations",
        "compilation s",
    ]
    panels = [
        _panel("Bound", "AI - Gaussian, nats", sizes, [_bounds(group) for group in groups]),
        _panel(
            "Test labels",
            "AI - Gaussian, nats per label",
            sizes,
            [_tests(group) for group in groups],
        ),
    ]
    caption = (
        "Gain of skew-normal base variables over the best Gaussian, mean and standard errors over"
        " models."
    )
    notes = [
        "Gain: AI seconds include the Gaussian stage, but not compilation, which each model needs"
        " once. Wall clock. The local bound is that of Jaakkola & Jordan."
    ]
    table = Table("Gain over the best Gaussian", header, [_row(group) for group in groups])
    return Section([table], [Figure("affine", caption, panels, columns=2)], notes)


def _bounds(group: list[Gain]) -> list[float]:
    return [one.affine - one.gaussian for one in group]


def _tests(group: list[Gain]) -> list[float]:
    return [one.affine_test - one.gaussian_test for one in group]


def _row(group: list[Gain]) -> list[str]:
    names = ("gaussian_seconds", "affine_seconds", "evaluations", "compile_seconds")
    medians = [np.median([getattr(one, name) for one in group]) for name in names]
    return [
        str(group[0].num_data),
        str(len(group)),
        mean_and_error([one.local - one.gaussian for one in group], 2),
        f"{np.mean([one.gaussian for one in group]):.2f}",
        mean_and_error(_bounds(group), 3),
        mean_and_error(_tests(group), 4),
        f"{medians[0]:.3f}",
        f"{medians[1]:.2f}",
        f"{medians[2]:.0f}",
        f"{medians[3]:.1f}",
    ]


def _panel(title: str, ylabel: str, sizes: list[int], values: list[list[float]]) -> Panel:
    mean = np.array([np.mean(one) for one in values])
    error = np.array([standard_error(one) for one in values])
    lines = [
        Series("mean over models", sizes, mean),
        Series("one standard error below and above", sizes, mean - error, dashed=True),
        Series("one standard error below and above", sizes, mean + error, dashed=True),
    ]
    return Panel(title, "observations", ylabel, lines)


PART = Part(Gain, _pieces, measure, section)
