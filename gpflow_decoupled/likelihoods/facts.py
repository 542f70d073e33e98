"""What the other rooms need to know of a likelihood: the one place that asks which it is."""

# A subclass counts as its base while it has the base's density (`is_gaussian`, `site_description`).

from __future__ import annotations

__all__ = [
    "base_of", "closed_tilting", "couples_latents", "defined_by_user",
    "draws_expectations", "entry_log_density", "has_infinite_edges", "has_latent_scale",
    "has_log_scale", "has_scale", "has_steps", "has_tasks", "is_by_entry", "is_gaussian",
    "is_rate", "is_scalar", "label_kind", "name_of", "noise_parameter", "noise_variance",
    "num_classes", "own_number", "prediction_errors", "reads_integers", "split_rows",
]  # fmt: skip

from typing import Literal

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood
from gpflow.likelihoods.utils import inv_probit

from ..probability import tfb
from .bernoulli import BernoulliLogit, BernoulliProbit
from .categorical import CategoricalLogit
from .counts import HurdlePoisson, ZeroInflatedPoisson
from .laplace import AsymmetricLaplace, Laplace
from .ordinal import Ordinal
from .parameters import NumberedLikelihood, is_gaussian
from .row_likelihood import RowLikelihood, is_by_entry
from .survival import CensoredNormal, LogNormal

_BINARY = (BernoulliLogit, BernoulliProbit, gl.Bernoulli)
_CLASSES = (CategoricalLogit, gl.MultiClass, gl.Softmax)
_SCALED = (gl.StudentT, Laplace, AsymmetricLaplace, CensoredNormal)
"""Of y about f, with a scale in units of y."""


def base_of(likelihood: Likelihood) -> Likelihood:
    """The likelihood of one entry of Y: that inside of a `RowLikelihood`, else itself."""
    return likelihood.likelihood if isinstance(likelihood, RowLikelihood) else likelihood


def name_of(likelihood: Likelihood | None) -> str:
    """The name of its class for a message; of a `RowLikelihood` that of the one inside."""
    return type(base_of(likelihood)).__name__


# ---
# Labels, and the columns of Y.


def label_kind(likelihood: Likelihood) -> Literal["binary", "classes", "grades"] | None:
    """What the labels are: 0 and 1, classes, or classes with an order; None for other Y."""
    if isinstance(likelihood, _BINARY):
        return "binary"
    if isinstance(likelihood, _CLASSES):
        return "classes"
    return "grades" if isinstance(likelihood, Ordinal) else None


def num_classes(likelihood: Likelihood) -> int | None:
    """C of labels 0, ..., C - 1; None where Y is no label."""
    if label_kind(likelihood) is None:
        return None
    return int(getattr(likelihood, "num_classes", getattr(likelihood, "num_bins", 2)))


def reads_integers(likelihood: Likelihood) -> bool:
    """True if Y must be of an integer type."""
    return isinstance(likelihood, gl.Softmax)


def has_tasks(likelihood: Likelihood) -> bool:
    """True if the last column of Y says which of several likelihoods a row belongs to."""
    return isinstance(likelihood, gl.SwitchedLikelihood)


def own_number(likelihood: Likelihood) -> str | None:
    """The name of the number that each row has by a `NumberedLikelihood`, or None."""
    return likelihood.number if isinstance(likelihood, NumberedLikelihood) else None


def split_rows(likelihood: Likelihood, Y: TensorType) -> tuple[TensorType, dict[str, TensorType]]:
    """y [..., P], and the numbers of the rows in the last columns of Y by name, if any."""
    if isinstance(likelihood, RowLikelihood):
        return likelihood.split(Y)
    if isinstance(likelihood, NumberedLikelihood):
        y, number = likelihood.split(Y)
        return y, {likelihood.number: number}
    return Y, {}


def prediction_errors(likelihood: Likelihood, predicted: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Predicted means less observations: shares of trials, classes as unit vectors, 0 in gaps.

    :param predicted: [N, P], probabilities [N, C] of classes, or the means of all tasks.
    :param Y: with the numbers of the rows, as the likelihood takes it.
    """
    if has_tasks(likelihood):
        tasks = predicted.reshape(len(Y), -1, Y.shape[1] - 1)
        return tasks[np.arange(len(Y)), Y[:, -1].astype(int)] - Y[:, :-1]
    y, numbers = split_rows(likelihood, Y)
    if predicted.shape[1] > y.shape[1]:
        return predicted - (np.arange(predicted.shape[1]) == y)
    return np.where(np.isnan(y), 0.0, predicted - y / numbers.get("trials", 1.0))


# ---
# Latent functions and densities. See also `is_by_entry`.


def is_scalar(likelihood: Likelihood) -> bool:
    """True if each entry of Y has one latent, perhaps by one of several likelihoods."""
    return isinstance(likelihood, gl.ScalarLikelihood)


def couples_latents(likelihood: Likelihood) -> bool:
    """True for the softmax of `CategoricalLogit`, whose expectations have a bound."""
    return isinstance(likelihood, CategoricalLogit)


def draws_expectations(likelihood: Likelihood | None) -> bool:
    """True if expected log densities are estimated from draws."""
    return isinstance(likelihood, gl.MonteCarloLikelihood)


def has_steps(likelihood: Likelihood) -> bool:
    """True if log p(y | f) is piecewise constant, so that its draws have no gradient."""
    return isinstance(likelihood, gl.MultiClass)


def has_infinite_edges(likelihood: object) -> bool:
    """True for GPflow's `Ordinal`, whose bounds are NaN by differences of infinite edges."""
    return isinstance(likelihood, gl.Ordinal)


def is_rate(likelihood: Likelihood) -> bool:
    """True if f is the logarithm of a rate whose curvature e^f has no bound."""
    base = base_of(likelihood)
    exact = type(base) in (
        HurdlePoisson,
        ZeroInflatedPoisson,
    )  # negative binomials derive from them
    return exact or getattr(base, "invlink", None) is tf.exp


def defined_by_user(likelihood: Likelihood, method: str | None = None) -> bool:
    """True if the class, or the definition of a method that it uses, comes with neither GPflow
    nor this package.
    """
    kind = type(likelihood)
    if method is not None:
        kind = next(one for one in kind.__mro__ if method in vars(one))
    return kind.__module__.partition(".")[0] not in ("gpflow", __package__.partition(".")[0])


def entry_log_density(
    likelihood: Likelihood, X: TensorType, f: tf.Tensor, Y: TensorType
) -> tf.Tensor:
    """log p(y | f) of each entry in nats [..., P], where `is_by_entry` of the base is true."""
    if isinstance(likelihood, RowLikelihood):
        return likelihood.entry_log_prob(X, f, Y)
    return likelihood._scalar_log_prob(X, f, Y)


def closed_tilting(
    likelihood: Likelihood, power: float
) -> Literal["classes", "laplace", "probit", "floored probit"] | None:
    """The closed form of int N(f; m, v) p(y | f)^power df and its derivatives, or None."""
    if couples_latents(likelihood):
        return "classes"
    if isinstance(likelihood, Laplace):
        return "laplace"
    if power == 1.0 and isinstance(likelihood, BernoulliProbit):
        return "probit"
    floored = isinstance(likelihood, gl.Bernoulli) and likelihood.invlink is inv_probit
    return "floored probit" if power == 1.0 and floored else None


# ---
# The noise of y about f, in units of y.


def has_latent_scale(likelihood: Likelihood) -> bool:
    """True if another latent function gives the scale of the noise."""
    return isinstance(base_of(likelihood), gl.HeteroskedasticTFPConditional)


def has_log_scale(likelihood: Likelihood) -> bool:
    """True if that latent is the logarithm of the noise's scale, which has the units of Y."""
    base = base_of(likelihood)
    return has_latent_scale(base) and isinstance(base.scale_transform, tfb.Exp)


def noise_parameter(likelihood: Likelihood) -> Literal["variance", "scale"] | None:
    """The name of the size of the noise that is added to f; None without such a number."""
    if is_gaussian(likelihood):
        return "scale" if likelihood.variance is None else "variance"
    added = isinstance(likelihood, _SCALED) and not isinstance(likelihood, LogNormal)
    return "scale" if added else None


def has_scale(likelihood: Likelihood) -> bool:
    """True if Y may be shifted and scaled: where it is f plus noise, censored or not."""
    return has_latent_scale(likelihood) or noise_parameter(base_of(likelihood)) is not None


def noise_variance(likelihood: Likelihood, X: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Variance of the noise [N, P] at X [N, D] and F [N, P]; its squared scale if it has none."""
    if isinstance(likelihood, gl.StudentT) and float(likelihood.df) <= 2.0:
        return np.broadcast_to(np.square(np.asarray(likelihood.scale)), F.shape)
    return np.broadcast_to(np.asarray(likelihood.conditional_variance(X, F)), F.shape)
