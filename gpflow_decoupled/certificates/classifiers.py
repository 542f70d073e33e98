"""The Gibbs, Bayes and voting classifiers."""

# With mean mu(x) and variance v(x) of q(f(x)), label y in {0, 1}, sign t = 2 y - 1, and the normal
# cdf Phi:
#
# | classifier | predicts the sign of | error rate on the sample |
# |---|---|---|
# | Gibbs | a fresh draw f(x) ~ q | mean of Phi(-t mu / sqrt v) |
# | Bayes | the mean mu(x) | share of points with t mu <= 0 |
# | voting | E sgn f(x) = 2 Phi(mu / sqrt v) - 1 | share of points with t E sgn f <= 0 |
#
# For Gaussian marginals the last two agree.

from __future__ import annotations

__all__ = [
    "CERTIFIED",
    "ClassifierErrors",
    "check_classifier",
    "checked_data",
    "classifier_errors",
    "errors_of_marginals",
    "latent_moments",
    "predict_labels",
]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli
from gpflow.models import GPModel
from scipy.special import erf, ndtr

from ..bases import AffineIndependentBasis
from ..errors import DataError, ModelError, NumericalError, check_option
from ..inducing.variables import input_dims
from ..inputs import as_inputs, as_pair, as_values, float_type
from ..likelihoods import BernoulliLogit, BernoulliProbit
from ..models.checks import check_shapes_of_data, check_values
from ..summaries import html_table, one_line

CERTIFIED = (
    "a model of gpflow_decoupled.models with a Gaussian posterior (ODVGP, SOLVEGP, HDVGP, DVGP,"
    " SparseCVIGP, CVIGP, LCLGP, CVIGLM, LCLGLM, BasisGP), or gpflow.models.VGP or SVGP"
)
"""The models that have certificates, for messages."""
_ROWS = 4096
"""Most inputs predicted at once."""
_PROBES = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
"""Values of f at which, with both signs, a likelihood is tested for symmetry."""
_SYMMETRY = 1e-6
"""Deviation of p(1 | f) + p(1 | -f) from 1 that counts as round-off."""


class ClassifierErrors(NamedTuple):
    """Error rates of the three classifiers on a sample.

    An undecided point, mu = 0, counts as an error.

    Example::

        errors = classifier_errors(model, (X, Y))
        errors.gibbs, errors.bayes, errors.voting
    """

    gibbs: float
    """The expectation over draws, mean of Phi(-t mu / sqrt v)."""
    bayes: float
    """Share of points with t mu <= 0."""
    voting: float
    """Share of points with t E sgn f <= 0."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


def classifier_errors(model: GPModel, data: RegressionData) -> ClassifierErrors:
    """Return the error rates of the Gibbs, Bayes and voting classifiers of a model.

    :param model: see `pac_bayes_certificate`.
    :param data: X [N, D] and labels Y [N, 1], 0 or 1.

    Example::

        held_out = classifier_errors(model, (X_test, Y_test))
        print(f"{held_out.bayes:.1%} of the predicted labels are wrong")
    """
    check_classifier(model)
    X, Y = checked_data(model, data)
    return errors_of_marginals(*latent_moments(model, X), Y)


def errors_of_marginals(mean: np.ndarray, deviation: np.ndarray, Y: np.ndarray) -> ClassifierErrors:
    """Return the three error rates from Gaussian marginals of f.

    mean and deviation are [N], labels Y [N, 1], 0 or 1.
    """
    signed = (2.0 * Y[:, 0] - 1.0) * mean
    ratio = _ratio(signed, deviation)
    gibbs, votes = ndtr(-ratio), erf(ratio / np.sqrt(2.0))
    return ClassifierErrors(
        float(np.mean(gibbs)), float(np.mean(signed <= 0.0)), float(np.mean(votes <= 0.0))
    )


def predict_labels(
    model: GPModel, Xnew: InputData, rule: str = "bayes", seed: int = 0
) -> np.ndarray:
    """Predict labels by one of the three classifiers.

    :param model: as for `classifier_errors`.
    :param Xnew: inputs [N, D].
    :param rule: "gibbs", with an independent draw per input, "bayes" or "voting".
    :param seed: of the draws.
    :return: labels [N, 1], 0 or 1; 0 where undecided.

    Example::

        labels = predict_labels(model, X_test, rule="bayes")
    """
    check_option("rule", rule, ("gibbs", "bayes", "voting"))
    check_classifier(model)
    inputs = as_inputs(Xnew, "Xnew", _columns(model), float_type(model.kernel))
    mean, deviation = latent_moments(model, np.asarray(inputs))
    if rule == "gibbs":
        score = mean + deviation * np.random.default_rng(seed).standard_normal(len(mean))
    else:
        score = mean if rule == "bayes" else erf(_ratio(mean, deviation) / np.sqrt(2.0))
    return (score > 0.0).astype(int)[:, None]


def latent_moments(model: GPModel, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [N] of f at X [N, D], with the mean function."""
    parts = [model.predict_f(X[start : start + _ROWS]) for start in range(0, len(X), _ROWS)]
    mean, variance = (
        np.concatenate([np.asarray(part, float)[:, 0] for part in column]) for column in zip(*parts)
    )
    if not np.all(np.isfinite(mean) & np.isfinite(variance)):
        raise NumericalError(
            f"q(f) of the {type(model).__name__} is not finite at"
            f" {int(np.sum(~np.isfinite(mean + variance)))} of {len(X)} inputs: train the model, or"
            " increase the jitter by gpflow.config.set_default_jitter.",
            matrix="q(f)",
        )
    return mean, np.sqrt(np.maximum(variance, 0.0))


def check_classifier(model: GPModel) -> None:
    """Refuse a model without the three classifiers."""
    if not isinstance(model, GPModel):
        raise ModelError(
            f"Certificates and classifiers take {CERTIFIED}, and got {type(model).__name__}, which"
            " has no latent function of the inputs. For inputs X and labels Y use CVIGP((X, Y),"
            " kernel, BernoulliLogit())."
        )
    likelihood, latents = model.likelihood, int(model.num_latent_gps)
    if not isinstance(likelihood, (Bernoulli, BernoulliLogit, BernoulliProbit)):
        raise DataError(
            f"{type(likelihood).__name__} is not a likelihood of two classes: give the model a"
            " Bernoulli, BernoulliLogit or BernoulliProbit likelihood. For several classes,"
            " certify a model of one class against the rest."
        )
    if latents != 1 or getattr(model, "num_outputs", 1) != 1:
        raise DataError(
            f"The model has {latents} latent functions; a binary classifier is the sign of one."
            " Build it with one column of Y."
        )
    if isinstance(getattr(model, "basis", None), AffineIndependentBasis):
        raise ModelError(
            f"The marginals of an {type(model).__name__} are not Gaussian, and the error rates and"
            " KL[Q || P] are computed for Gaussian ones: use CVIGP or LCLGP with the same data,"
            " kernel and likelihood."
        )
    f = np.concatenate([-_PROBES[::-1], _PROBES])[:, None]
    p = np.asarray(
        likelihood.conditional_mean(tf.zeros_like(f), tf.constant(f, default_float())), float
    )
    if np.any(np.abs(p + p[::-1] - 1.0) > _SYMMETRY) or np.any(np.diff(p[:, 0]) < 0.0):
        raise DataError(
            f"The link of {type(likelihood).__name__} is not symmetric: p(y = 1 | f) + p(y = 1 |"
            " -f) is not 1, so that the sign of f is not the more probable class. Use"
            " BernoulliLogit or BernoulliProbit."
        )


def checked_data(model: GPModel, data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    """Return X [N, D] and Y [N, 1], labels 0 or 1, as arrays of floats."""
    X, Y = (
        as_values(array, name, float_type(model.kernel)) for array, name in zip(as_pair(data), "XY")
    )
    check_shapes_of_data(X, Y, model.likelihood, 1, _columns(model))
    check_values(X, Y, model.likelihood)
    return X, Y.astype(X.dtype)


def _columns(model: GPModel) -> int | None:
    if hasattr(model, "data"):
        return int(model.data[0].shape[1])
    return input_dims(model.basis.beta if hasattr(model, "basis") else model.inducing_variable)


def _ratio(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    certain = deviation == 0.0
    return np.where(
        certain, np.where(mean > 0.0, np.inf, -np.inf), mean / np.where(certain, 1.0, deviation)
    )
