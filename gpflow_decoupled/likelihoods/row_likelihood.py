"""A likelihood whose rows differ by known numbers."""

from __future__ import annotations

__all__ = [
    "MOST_NODES", "NEUTRAL", "RowLikelihood", "finer", "is_by_entry", "nodes_of", "with_gaps",
    "with_nodes",
]  # fmt: skip

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Bernoulli, Likelihood, ScalarLikelihood, SwitchedLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from ..errors import DataError, check_option
from ..expectations.log_means import log_mean_exp
from .bernoulli import BernoulliLogit, BernoulliProbit
from .counts import log_choices
from .log_densities import expected_log_densities, observation_log_density
from .parameters import NumberedLikelihood, is_gaussian

NEUTRAL: Mapping[str, float] = {
    "weight": 1.0, "offset": 0.0, "noise": 0.0, "trials": 1.0, "censored": 0.0,
}  # fmt: skip
"""Numbers of a row, and their values for a row like any other."""
_BINARY = (Bernoulli, BernoulliLogit, BernoulliProbit)
_FILL = 0.5
"""Fills a missing entry: in every support, and what is computed of it is dropped."""
Rule: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""X [n, D], mean, variance and y [n, 1] -> nats [n]."""


class RowLikelihood(Likelihood):
    """p(y_n | f_n) of a scalar likelihood, with known numbers of each row, and gaps in y.

    Y is [N, P + k]: y, NaN where missing, and a column for each of the k `numbers`. With weight w,
    offset o, noise variance s2 and trials t, a row's term of the bound is

        w sum_p E log p(y_p | f_p + o)

    over the observed entries. s2 is added to the variance of a `Gaussian`; labels y count successes
    in t trials. Predictions are for weight 1, offset 0 and one trial.

    :param likelihood: of each column of y; with weights alone also of several latents, such as
        `CategoricalLogit`.
    :param numbers: "weight", "trials", "censored", one column each; "offset" and "noise", one
        column, or P times. By default none, for gaps alone.

    Example::

        likelihood = RowLikelihood(gpflow.likelihoods.Poisson(), ["offset"])
        model = CVIGP((X, np.hstack([counts, np.log(exposure)])), kernel, likelihood)
    """

    def __init__(self, likelihood: Likelihood, numbers: Sequence[str] = ()) -> None:
        self.by_entry = is_by_entry(likelihood)
        latents = None if self.by_entry else likelihood.latent_dim
        super().__init__(input_dim=None, latent_dim=latents, observation_dim=None)
        alone = set(numbers) == {"weight"} and not isinstance(likelihood, SwitchedLikelihood)
        if not (self.by_entry or alone):
            raise DataError(
                f"a {type(likelihood).__name__} has several latents for an observation, and takes"
                " weights alone of its rows; gaps and other numbers are for likelihoods with one"
                " for each, such as Gaussian or Poisson."
            )
        for name in numbers:
            check_option("numbers", name, tuple(NEUTRAL))
        if "noise" in numbers and not is_gaussian(likelihood):
            raise DataError(
                f"known noise is for a Gaussian likelihood, and this is {type(likelihood).__name__}"
            )
        self.own = likelihood.number if isinstance(likelihood, NumberedLikelihood) else None
        if self.own is not None and self.own not in numbers:
            raise DataError(
                f"{type(likelihood).__name__} has a number of {self.own} for each row; name"
                f' "{self.own}" among the numbers, with its column in Y.'
            )
        if "trials" in numbers and not (self.own == "trials" or isinstance(likelihood, _BINARY)):
            raise DataError(
                "trials are for labels, such as a BernoulliLogit likelihood, and this is"
                f" {type(likelihood).__name__}; for counts without an end pass an exposure."
            )
        self.likelihood = likelihood
        self.numbers = tuple(numbers)

    def split(self, Y: TensorType) -> tuple[TensorType, dict[str, TensorType]]:
        """y [..., P], and numbers of the rows by name, [..., 1] or [..., P]."""
        outputs = Y.shape[-1] - len(self.numbers)
        if outputs < 1:
            raise DataError(
                f"Y has {Y.shape[-1]} columns, of which the last are {', '.join(self.numbers)}."
            )
        found: dict[str, TensorType] = {}
        for name in dict.fromkeys(self.numbers):
            places = [outputs + at for at, one in enumerate(self.numbers) if one == name]
            found[name] = Y[..., places[0] : places[-1] + 1]
        return Y[..., :outputs], found

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, numbers = self.split(Y)
        weight = numbers.get("weight", 1.0)
        if not self.by_entry:
            values = expected_log_densities(self.likelihood, X, Fmu, Fvar, y)[..., None]
            return tf.reduce_sum(values * weight, axis=-1)
        mean = Fmu + numbers.get("offset", 0.0)
        if is_gaussian(self.likelihood):
            variance = self.likelihood._variance(X) + numbers.get("noise", 0.0)
            values = _normal(y, mean, variance) - 0.5 * Fvar / variance
        elif "trials" in numbers and self.own is None:
            values = self._of_trials(X, mean, Fvar, y, numbers["trials"])
        else:
            rule = partial(expected_log_densities, self.likelihood)
            values = _by_entry(rule, X, mean, Fvar, y, numbers.get(self.own or ""))
        return tf.reduce_sum(_kept(values, y) * weight, axis=-1)

    def _of_trials(
        self, X: TensorType, mean: TensorType, variance: TensorType, y: TensorType, t: TensorType
    ) -> tf.Tensor:
        rule = partial(expected_log_densities, self.likelihood)
        successes, failures = (
            _by_entry(rule, X, mean, variance, tf.fill(tf.shape(y), c))
            for c in (tf.ones([], mean.dtype), tf.zeros([], mean.dtype))
        )
        seen = _filled(y)
        return log_choices(t, seen) + seen * successes + (t - seen) * failures

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        if not self.by_entry:
            y, numbers = self.split(Y)
            return self.likelihood.log_prob(X, F, y) * numbers["weight"][..., 0]
        return tf.reduce_sum(self.entry_log_prob(X, tf.convert_to_tensor(F), Y), axis=-1)

    def entry_log_prob(self, X: TensorType, F: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """w log p(y_p | f_p + o) of each entry in nats [..., P], 0 where it is missing.

        :param F: [..., P], perhaps with more axes in front than X [..., D] and Y [..., P + k].
        """
        y, numbers = self.split(Y)
        f, seen = F + numbers.get("offset", 0.0), _filled(y)
        if is_gaussian(self.likelihood):
            values = _normal(y, f, self.likelihood._variance(X) + numbers.get("noise", 0.0))
        elif "trials" in numbers and self.own is None:
            t = numbers["trials"]
            one, none = (
                self.likelihood._scalar_log_prob(X, f, tf.fill(tf.shape(y), c))
                for c in (tf.ones([], f.dtype), tf.zeros([], f.dtype))
            )
            values = log_choices(t, seen) + seen * one + (t - seen) * none
        else:
            labels = seen if self.own is None else tf.concat([seen, numbers[self.own]], axis=-1)
            values = self.likelihood._scalar_log_prob(X, f, labels)
        return _kept(values, y) * numbers.get("weight", 1.0)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.likelihood._conditional_mean(X, F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.likelihood._conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.likelihood._predict_mean_and_var(X, Fmu, Fvar)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log p(y) of a row in nats, [...]; weights count in training alone."""
        y, numbers = self.split(Y)
        if not self.by_entry:
            return observation_log_density(self.likelihood, X, Fmu, Fvar, y)
        mean = Fmu + numbers.get("offset", 0.0)
        if is_gaussian(self.likelihood):
            variance = Fvar + self.likelihood._variance(X) + numbers.get("noise", 0.0)
            values = _normal(y, mean, variance)
        elif "trials" in numbers and self.own is None:
            values = self._log_density_of_trials(X, mean, Fvar, y, numbers["trials"])
        else:
            rule = partial(observation_log_density, self.likelihood)
            own = numbers.get(self.own or "")
            values = _by_entry(rule, X, mean, Fvar, y, own)
        return tf.reduce_sum(_kept(values, y), axis=-1)

    def _log_density_of_trials(
        self, X: TensorType, mean: TensorType, variance: TensorType, y: TensorType, t: TensorType
    ) -> tf.Tensor:
        # links of labels do not read X
        seen, trials = _filled(y), t + tf.zeros_like(y)

        def log_prob(f: tf.Tensor) -> tf.Tensor:
            one, none = (
                self.likelihood._scalar_log_prob(tf.zeros_like(f), f, label)
                for label in (tf.ones_like(f), tf.zeros_like(f))
            )
            return log_choices(trials, seen) + seen * one + (trials - seen) * none

        return log_mean_exp(log_prob, mean, variance)


def with_gaps(likelihood: Likelihood, Y: np.ndarray) -> Likelihood:
    """The `RowLikelihood` that leaves out the missing entries of Y [N, P].

    The likelihood itself where none is NaN, and where an observation has several latents.
    """
    if not is_by_entry(likelihood) or not np.isnan(np.asarray(Y, np.float64)).any():
        return likelihood
    numbers = [likelihood.number] if isinstance(likelihood, NumberedLikelihood) else []
    return RowLikelihood(likelihood, numbers)


def is_by_entry(likelihood: Likelihood) -> bool:
    """True if each entry of Y has one latent, and all of them one density."""
    scalar = isinstance(likelihood, ScalarLikelihood)
    return scalar and not isinstance(likelihood, SwitchedLikelihood)


def _by_entry(
    rule: Rule,
    X: TensorType,
    mean: TensorType,
    variance: TensorType,
    y: TensorType,
    number: TensorType | None = None,
) -> tf.Tensor:
    outputs = y.shape[-1]
    rows = tf.reshape(tf.repeat(X, outputs, axis=-2), [-1, X.shape[-1]])
    parts = [tf.reshape(part, [-1, 1]) for part in (mean, variance, _filled(y))]
    if number is not None:
        parts[2] = tf.concat([parts[2], tf.reshape(number + tf.zeros_like(y), [-1, 1])], axis=1)
    return tf.reshape(rule(rows, *parts), tf.shape(y))


def _normal(y: TensorType, mean: TensorType, variance: TensorType) -> tf.Tensor:
    there = tf.where(tf.math.is_nan(y), tf.stop_gradient(mean), y)
    two_pi = tf.constant(2.0 * np.pi, mean.dtype)
    return -0.5 * (tf.math.log(two_pi * variance) + tf.square(there - mean) / variance)


def _filled(y: TensorType) -> tf.Tensor:
    return tf.where(tf.math.is_nan(y), tf.constant(_FILL, y.dtype), y)


def _kept(values: TensorType, y: TensorType) -> tf.Tensor:
    return tf.where(tf.math.is_nan(y), tf.zeros_like(values), values)


# ---
# The number of Gauss-Hermite nodes.


MOST_NODES = 300
"""With more nodes NumPy's weights underflow."""
_MOST_LATENTS = 2
"""With more latents per observation a grid of twice the nodes is too large."""


def nodes_of(likelihood: gl.Likelihood) -> int | None:
    """The number of Gauss-Hermite nodes per latent function; None without such a rule."""
    if isinstance(likelihood, gl.SwitchedLikelihood):
        return max(
            (number for part in likelihood.likelihoods if (number := nodes_of(part))), default=None
        )
    if isinstance(likelihood, RowLikelihood):
        return nodes_of(likelihood.likelihood)
    if isinstance(likelihood, gl.MultiClass):
        return int(likelihood.num_gauss_hermite_points)
    rule = getattr(likelihood, "quadrature", None)
    return rule.n_gh if isinstance(rule, NDiagGHQuadrature) and rule.dim <= _MOST_LATENTS else None


def with_nodes(likelihood: gl.Likelihood, number: int) -> gl.Likelihood:
    """A copy with another number of nodes, if any, sharing all Parameters."""
    if nodes_of(likelihood) is None:
        return likelihood
    other = copy.copy(likelihood)
    changed: dict[str, object]
    if isinstance(likelihood, gl.SwitchedLikelihood):
        changed = {"likelihoods": [with_nodes(part, number) for part in likelihood.likelihoods]}
    elif isinstance(likelihood, RowLikelihood):
        changed = {"likelihood": with_nodes(likelihood.likelihood, number)}
    elif isinstance(likelihood, gl.MultiClass):
        changed = {"num_gauss_hermite_points": number}
    else:
        changed = {"quadrature": NDiagGHQuadrature(likelihood.quadrature.dim, number)}
    for name, value in changed.items():
        object.__setattr__(other, name, value)  # past the tracking of tf.Module
    return other


def finer(likelihood: gl.Likelihood, doublings: int) -> gl.Likelihood:
    """The likelihood with 2^doublings times its nodes, at most 300."""
    number = nodes_of(likelihood)
    if number is None or doublings == 0:
        return likelihood
    return with_nodes(likelihood, min(number * 2**doublings, MOST_NODES))
