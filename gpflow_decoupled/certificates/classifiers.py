"""The three classifiers in a posterior q over latent functions, and their error rates.

Labels are 0 or 1, t = 2 y - 1. With mean mu(x) and variance v(x) of q(f(x)), the Gibbs classifier answers with the sign of a
fresh draw f ~ q, Bayes with the sign of E f, Bayes voting with the sign of E sgn f = 2 Phi(mu / sqrt v) - 1. For Gaussian
marginals the last two agree.
"""

from __future__ import annotations

__all__ = [
    "ClassifierErrors",
    "check_classifier",
    "checked_data",
    "classifier_errors",
    "latent_moments",
    "predict_labels",
]

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli
from gpflow.models import GPModel
from scipy.special import erf, ndtr

from ..bases import AffineIndependentBasis
from ..errors import DataError, NumericalError, check_option
from ..inducing.variables import input_dims
from ..likelihoods import BernoulliLogit, BernoulliProbit
from ..models.checks import check_shapes_of_data, check_values

_ROWS = 4096
"""Most inputs that are predicted at once."""
_PROBES = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
_SYMMETRY = 1e-6


class ClassifierErrors(NamedTuple):
    """Error rates on a sample, between 0 and 1."""

    gibbs: float
    """the expectation over draws, in closed form: the mean of Phi(-t mu / sqrt v)"""
    bayes: float
    """where t mu <= 0: a point that is not decided counts as an error"""
    voting: float


def classifier_errors(model: Any, data: RegressionData) -> ClassifierErrors:
    """The error rates of the three classifiers of `model` on data X [N, D], Y [N, 1] of labels 0 and 1.

    Raises `DataError` for unusable data, and for models that are no binary classifiers, see `check_classifier`. Cost: that
    of predicting N marginals.
    """
    check_classifier(model)
    X, Y = checked_data(model, data)
    mean, deviation = latent_moments(model, X)
    signed = (2.0 * Y[:, 0] - 1.0) * mean
    ratio = _ratio(signed, deviation)
    gibbs, votes = ndtr(-ratio), erf(ratio / np.sqrt(2.0))
    return ClassifierErrors(float(np.mean(gibbs)), float(np.mean(signed <= 0.0)), float(np.mean(votes <= 0.0)))


def predict_labels(model: Any, Xnew: InputData, rule: str = "bayes", seed: int = 0) -> np.ndarray:
    """Labels 0 or 1 [N, 1] at Xnew [N, D] by one of the three classifiers; 0 where nothing is decided.

    :param rule: "gibbs", with a draw of its own for every input, "bayes" or "voting". :param seed: of the draws.

    Raises `UnknownOptionError` for another rule, and as `classifier_errors`.
    """
    check_option("rule", rule, ("gibbs", "bayes", "voting"))
    check_classifier(model)
    mean, deviation = latent_moments(model, np.asarray(Xnew, default_float()))
    if rule == "gibbs":
        score = mean + deviation * np.random.default_rng(seed).standard_normal(len(mean))
    else:
        score = mean if rule == "bayes" else erf(_ratio(mean, deviation) / np.sqrt(2.0))
    return (score > 0.0).astype(int)[:, None]


def latent_moments(model: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N] and standard deviation [N] of f, with the mean function, at X [N, D], by blocks of rows.

    Raises `NumericalError` where they are not finite.
    """
    parts = [model.predict_f(X[start : start + _ROWS]) for start in range(0, len(X), _ROWS)]
    mean, variance = (np.concatenate([np.asarray(part, float)[:, 0] for part in column]) for column in zip(*parts))
    if not np.all(np.isfinite(mean) & np.isfinite(variance)):
        raise NumericalError(
            f"q(f) of the {type(model).__name__} is not finite at {int(np.sum(~np.isfinite(mean + variance)))} of {len(X)} "
            "inputs: train the model, or set_default_jitter to more.",
            matrix="q(f)",
        )
    return mean, np.sqrt(np.maximum(variance, 0.0))


def check_classifier(model: Any) -> None:
    """Raise `DataError` unless the model has one Gaussian latent function and a likelihood of two classes, p(1 | f) =
    p(0 | -f), and `TypeError` for what is no GP model.
    """
    if not isinstance(model, GPModel):
        raise TypeError(
            f"A {type(model).__name__} is no GP model; see pac_bayes_certificate for what can be certified."
        )
    likelihood, latents = model.likelihood, int(model.num_latent_gps)
    if not isinstance(likelihood, (Bernoulli, BernoulliLogit, BernoulliProbit)):
        raise DataError(
            f"{type(likelihood).__name__} is no likelihood of two classes; the three classifiers are those of a Bernoulli, "
            "BernoulliLogit or BernoulliProbit. For several classes, certify one class against the rest."
        )
    if latents != 1 or getattr(model, "num_outputs", 1) != 1:
        raise DataError(f"The model has {latents} latent functions; a binary classifier is the sign of one.")
    if isinstance(getattr(model, "basis", None), AffineIndependentBasis):
        raise DataError("The marginals of this model are not Gaussian, and closed forms need that; use CVIGP or LCLGP.")
    f = np.concatenate([-_PROBES[::-1], _PROBES])[:, None]
    p = np.asarray(likelihood.conditional_mean(tf.zeros_like(f), tf.constant(f, default_float())), float)
    if np.any(np.abs(p + p[::-1] - 1.0) > _SYMMETRY) or np.any(np.diff(p[:, 0]) < 0.0):
        raise DataError(
            f"The link of {type(likelihood).__name__} is not symmetric, p(y = 1 | f) + p(y = 1 | -f) is not 1: the sign of f "
            "is then not its class; use the logit or the probit."
        )


def checked_data(model: Any, data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and labels Y [N, 1] as floats. Raises `DataError` for what is no pair of such arrays."""
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(f"data is a {type(data).__name__}; pass (X, Y).")
    X, Y = (np.asarray(array) for array in data)
    check_shapes_of_data(X, Y, model.likelihood, 1, _columns(model))
    check_values(X, Y, model.likelihood)
    return X, Y.astype(X.dtype)


def _columns(model: Any) -> int | None:
    """D of the data that a model owns, or of its inducing points."""
    if hasattr(model, "data"):
        return int(model.data[0].shape[1])
    return input_dims(model.basis.beta if hasattr(model, "basis") else model.inducing_variable)


def _ratio(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Mean over deviation [N]; where nothing is random, infinite with the sign of the mean, and -infinity for an f of 0."""
    certain = deviation == 0.0
    return np.where(certain, np.where(mean > 0.0, np.inf, -np.inf), mean / np.where(certain, 1.0, deviation))
