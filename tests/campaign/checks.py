"""What must hold of a trained model, each as a function that says what does not."""

from __future__ import annotations

__all__ = ["check_bound", "check_trained", "evidence_of"]

import math

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from .evidence import gaussian_evidence, quadrature_evidence
from .problems import Problem, labels_for

FULL_WITH_JITTER = ("AffineIndependentGP",)
"""Models whose prior has the jitter of their Gram matrix in it."""

EXPONENTIAL = (
    "Poisson",
    "NegativeBinomial",
    "Exponential",
    "Gamma",
    "Heteroskedastic",
    "ZeroInflatedPoisson",
    "ZeroInflatedNegativeBinomial",
    "HurdlePoisson",
    "HurdleNegativeBinomial",
    "LogNormal",
    "Weibull",
    "Tweedie",
)
"""Likelihoods of exp(f), whose moments under a wide q are true numbers beyond the range of floats:
they may be infinite.
"""


def digits(dtype: type) -> float:
    """The round-off of a number."""
    return float(np.finfo(dtype).eps)


def check_bound(before: float, after: float, problem: Problem) -> list[str]:
    """The bound is finite, and training does not end below where it began."""
    if not math.isfinite(after):
        return [f"the bound after training is {after:g}, and was {before:g}"]
    allowed = 1e-6 * max(1.0, abs(before)) + 1e3 * digits(problem.dtype) * max(abs(before), 1.0)
    if math.isfinite(before) and after < before - allowed:
        return [f"training moved the bound down from {before:.8g} to {after:.8g}"]
    return []


def evidence_of(model: GPModel, problem: Problem) -> tuple[float, float]:
    """The log evidence at the model's hyperparameters in nats and its error; NaN where it is not
    known.
    """
    X, Y = problem.data
    if isinstance(model.kernel, gpflow.kernels.MultioutputKernel) or problem.likelihood in (
        "Softmax",
    ):
        return math.nan, 0.0
    K = np.asarray(model.kernel(X), np.float64)
    if problem.model in FULL_WITH_JITTER:
        K = K + max(
            gpflow.config.default_jitter(), 500 * digits(problem.dtype) * np.mean(np.diag(K))
        ) * np.eye(len(K))
    mean = np.broadcast_to(
        np.asarray(model.mean_function(X), np.float64), (len(X), problem.latents)
    )
    if problem.likelihood == "Gaussian":
        noise = float(model.likelihood.variance.numpy())
        residual = np.asarray(Y, np.float64) - mean
        found = [
            gaussian_evidence(K, column, noise, digits(problem.dtype)) for column in residual.T
        ]
        return sum(value for value, _ in found), sum(error for _, error in found)
    if len(X) > 3 or problem.latents > 1:
        return math.nan, 0.0
    labels = tf.convert_to_tensor(Y)

    def log_density(f: np.ndarray) -> np.ndarray:
        values = tf.convert_to_tensor(f.astype(Y.dtype))
        each = [
            model.likelihood.log_prob(X[n][None], values[:, n, None], labels[n][None])
            for n in range(len(X))
        ]
        return sum(np.asarray(value, np.float64) for value in each)

    value, error = quadrature_evidence(K, mean[:, 0], log_density)
    return (value, error) if error < 1e-2 else (math.nan, 0.0)


def check_trained(
    model: GPModel, after: float, problem: Problem, rng: np.random.Generator
) -> list[str]:
    """The bound `after` training is not above the evidence, and predictions are sound: at the data,
    between and far away.
    """
    complaints: list[str] = []
    evidence, error = evidence_of(model, problem)
    # the sum of N terms and a divergence, each with the round-off of its largest part
    slack = (
        error + 1e-6 * max(1.0, abs(evidence)) + 1e3 * digits(problem.dtype) * max(1.0, abs(after))
    )
    if math.isfinite(evidence) and after > evidence + slack:
        complaints.append(f"the bound {after:.10g} is above the evidence {evidence:.10g}")
    complaints += check_predictions(model, problem, rng)
    if problem.is_stationary:
        complaints += check_far_away(model, problem)
    return complaints


def check_predictions(model: GPModel, problem: Problem, rng: np.random.Generator) -> list[str]:
    """Means are finite, and variances finite and not negative: at the data, between and far from
    them.
    """
    X, Y = problem.data
    between = X[rng.integers(len(X), size=5)] + problem.lengthscale * rng.normal(
        size=(5, X.shape[1])
    )
    inputs = np.concatenate([X, between, X[:2] + 1e3 * problem.lengthscale]).astype(
        X.dtype
    )  # the last two are far away
    complaints = []
    for verb in ("predict_f", "predict_y"):
        sound = (
            _no_nan if verb == "predict_y" and problem.likelihood in EXPONENTIAL else np.isfinite
        )
        mean, variance = (np.asarray(part) for part in getattr(model, verb)(inputs))
        # where squares are beyond the range of floats, GPflow's E y^2 - (E y)^2 is a difference of
        # two infinities
        with np.errstate(over="ignore"):
            overflow = ~np.isfinite(np.square(mean)) & (
                verb == "predict_y" and problem.likelihood in EXPONENTIAL
            )
        for name, bad in (
            ("mean", ~sound(mean)),
            ("variance", ~(sound(variance) & (variance >= 0.0) | overflow)),
        ):
            if np.any(bad):
                row, column = np.argwhere(bad)[0]
                value = (mean if name == "mean" else variance)[row, column]
                place = (
                    "at the data" if row < len(X) else "between" if row < len(X) + 5 else "far away"
                )
                complaints.append(f"{verb} {place}: a {name} of {value:g}")
    density = np.asarray(model.predict_log_density((X, labels_for(model, Y))))
    if np.any(np.isnan(density)) or np.any(density == np.inf):
        complaints.append(f"predict_log_density at the data: {density[~np.isfinite(density)][0]}")
    return complaints


def check_far_away(model: GPModel, problem: Problem) -> list[str]:
    """A thousand lengthscales and more away the posterior is the prior: mean function and prior
    variance.
    """
    X = problem.data[0]
    reach = max(float(np.max(np.asarray(p))) for p in _lengthscales(model))
    far = (X[:1] + 1e3 * reach * np.ones_like(X[:1])).astype(X.dtype)
    mean, variance = (np.asarray(part, np.float64) for part in model.predict_f(far))
    expected = np.broadcast_to(np.asarray(model.mean_function(far), np.float64), mean.shape)
    prior = np.asarray(model.kernel(far, full_cov=False), np.float64)[:, None]
    slack = 1e3 * digits(problem.dtype)
    complaints = []
    if not np.allclose(mean, expected, rtol=slack, atol=slack * np.sqrt(np.max(prior))):
        complaints.append(
            f"far away the mean is {mean.ravel()[0]:.10g} and the mean function"
            f" {expected.ravel()[0]:.10g}"
        )
    if not np.allclose(variance, prior, rtol=slack):
        complaints.append(
            f"far away the variance is {variance.ravel()[0]:.10g} and the prior's"
            f" {prior.ravel()[0]:.10g}"
        )
    return complaints


def _no_nan(array: np.ndarray) -> np.ndarray:
    return ~np.isnan(array)


def _lengthscales(model: GPModel) -> list[np.ndarray]:
    found = gpflow.utilities.parameter_dict(model.kernel).items()
    return [np.asarray(value) for name, value in found if "lengthscales" in name]
