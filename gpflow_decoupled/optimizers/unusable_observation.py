"""Which observation makes a bound infinite or NaN, as an error that names it, its likelihood, and
what to do.
"""

from __future__ import annotations

__all__ = ["Moments", "naming_observation", "unusable_observation"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import RegressionData

from ..covariances.latents import prior_variance
from ..distributions.closed_form import NormalBase
from ..errors import NumericalError
from ..expectations.projections import Projections
from ..expectations.site_integrals import integrate
from ..likelihoods import BernoulliLogit
from ..likelihoods.lookup import is_logit
from ..likelihoods.parameters import extreme_parameters
from ..models import CVIGP, LCLGP, AffineIndependentGP, BasisGP
from ..posteriors import mix_outputs

Observed: TypeAlias = CVIGP | LCLGP | AffineIndependentGP | BasisGP
Moments: TypeAlias = tuple[tf.Tensor, tf.Tensor]
"""Mean and variance of f at the observations, [N, P] each"""

_TOO_LARGE = 1e30
"""Nats: some site losses are cut off above it, so that they stay finite"""


class _Found(NamedTuple):
    """Expected log densities and the moments of f at which they were computed."""

    values: np.ndarray
    """[N], nats"""
    mean: np.ndarray
    """[N, P]"""
    variance: np.ndarray
    """[N, P]"""


def unusable_observation(
    model: object,
    data: RegressionData | None,
    moments: Moments | None = None,
    rows: np.ndarray | None = None,
) -> NumericalError | None:
    """The error for the first observation whose expected log density is not finite.

    It is looked for at the moments that are given and at the model's q(f); where steps begin
    elsewhere, at the prior too.

    :param model: a `CVIGP`, `LCLGP`, `AffineIndependentGP` or `BasisGP`; for other models there is
        no answer.
    :param data: X [N, D] and Y [N, P] at which the bound was not finite; None for those of a model
        that owns them. Without `moments`, such a model reads its own in any case.
    :param moments: mean and variance of f at the data, [N, P] each, where the bound was not finite.
    :param rows: the numbers of these rows in the whole data set [N]; if not given, they are
        counted.
    :return: None where all expectations are finite, or the moments of f themselves are not, so that
    the cause is elsewhere.
    """
    if not isinstance(model, (CVIGP, LCLGP, AffineIndependentGP, BasisGP)):
        return None
    for Y, candidate in _candidates(model, data, moments):
        try:
            found = candidate()
        except (
            NumericalError,
            tf.errors.InvalidArgumentError,
        ):  # a matrix is the cause, which others name
            continue
        sound = (
            np.all(np.isfinite(found.mean))
            and np.all(np.isfinite(found.variance))
            and np.all(found.variance >= 0.0)
        )
        if sound and np.any(_unusable(found.values)):
            return _error(model.likelihood, Y, found, rows)
    return None


@contextmanager
def naming_observation(
    model: object, moments: Callable[[], Moments] | None = None
) -> Iterator[None]:
    """A `NumericalError` that is raised inside names the observation, where there is one that
    causes it.

    :param model: as of `unusable_observation`, with data of its own.
    :param moments: computes the moments of f at the data where the run starts; only called after an
    error.
    """
    try:
        yield
    except NumericalError as error:
        cause = unusable_observation(model, None, None if moments is None else moments())
        raise error if cause is None else cause from error


def _candidates(
    model: Observed, data: RegressionData | None, moments: Moments | None
) -> Iterator[tuple[tf.Tensor, Callable[[], _Found]]]:
    """Where to look, in this order: the observations Y [N, P], and what computes their
    expectations.
    """
    own = None if isinstance(model, BasisGP) else model.data
    if moments is not None:
        at, given = moments, own if data is None else data
        if given is not None:
            yield given[1], lambda: _at(model, given, *at)
        if data is not None:
            return  # some of the rows, and the moments of all may cost too much
    whole = data if own is None else own
    if whole is None:
        return
    if isinstance(model, AffineIndependentGP):
        yield whole[1], lambda: _at_own_base(model)
    else:
        yield whole[1], lambda: _at(model, whole, *_own_moments(model, whole[0]))
    if isinstance(model, (LCLGP, AffineIndependentGP)):
        yield whole[1], lambda: _at(model, whole, *_prior_moments(model))


def _at(model: Observed, data: RegressionData, m: tf.Tensor, v: tf.Tensor) -> _Found:
    """The expectations under f ~ N(m, v), [N, P] each, as the bound of this model computes them."""
    X, Y = data
    if isinstance(model, LCLGP):
        m, v = m[: len(Y)], v[: len(Y)]  # sites of weights follow
        values = -tf.reduce_sum(model.observation_loss().value(m, tf.sqrt(v)), axis=1)
    elif isinstance(model, AffineIndependentGP):
        y = Projections(tf.sqrt(v), m[:, 0], tf.zeros([1, 0], m.dtype))
        values = integrate(
            NormalBase(), y, model.site_groups()[0].site, model.integration._replace(route="auto")
        )
    else:
        values = model.likelihood.variational_expectations(X, m, v, Y)
    return _Found(values.numpy(), m.numpy(), v.numpy())


def _at_own_base(model: AffineIndependentGP) -> _Found:
    """The expectations under the model's own q, which is not Gaussian."""
    group = model.site_groups()[0]
    y = model.basis.projections(group)
    values = integrate(model.basis.base, y, group.site, model.integration)
    return _Found(values.numpy(), y.beta.numpy()[:, None], tf.square(y.spread).numpy()[:, None])


def _own_moments(model: CVIGP | LCLGP | BasisGP, X: tf.Tensor) -> Moments:
    """Mean and variance of f under q at X, which are the inputs of a model that owns its data,
    [N, P] each.
    """
    if isinstance(model, BasisGP):
        return model.predict_f(X)
    state = model.basis.factor(model.kernel)
    mean, variance = mix_outputs(model.kernel, state.mean[: len(X)], state.variance[: len(X)])
    return mean + model.mean_function(X), variance


def _prior_moments(model: LCLGP | AffineIndependentGP) -> Moments:
    """Mean and variance of f at the model's data before any observation, [N, L] each."""
    X, Y = model.data
    mean = tf.zeros_like(Y) + tf.cast(model.mean_function(X), Y.dtype)
    return mean, tf.zeros_like(Y) + tf.transpose(prior_variance(model.kernel, X, full_cov=False))


def _error(
    likelihood: gl.Likelihood, Y: tf.Tensor, found: _Found, rows: np.ndarray | None
) -> NumericalError:
    """The error that names the first bad row, by its number among `rows`."""
    bad = _unusable(found.values)
    row, name = int(np.argmax(bad)), type(likelihood).__name__
    y, m, v = (
        np.array2string(np.asarray(part)[row], precision=4)
        for part in (Y, found.mean, found.variance)
    )
    where = (
        f"row {row} of the data of this step" if rows is None else f"row {rows[row]} of the data"
    )
    return NumericalError(
        f"The bound is not finite: the expected log density of {name} is {found.values[row]:.4g} at"
        f" {where}, Y = {y}, where f has mean {m} and variance {v} ({int(bad.sum())} of {len(bad)}"
        " rows are like that). " + _remedy(likelihood),
        matrix=f"expected log density of {name}",
    )


def _unusable(values: np.ndarray) -> np.ndarray:
    """Which expected log densities [N] are infinite, NaN, or so large that what is computed from
    them is.
    """
    return ~(np.abs(values) < _TOO_LARGE)


def _remedy(likelihood: gl.Likelihood) -> str:
    """The reason as far as it is known, and what to do."""
    if isinstance(likelihood, gl.Ordinal):
        return (
            "GPflow's Ordinal subtracts infinite bin edges for the first and the last class, which"
            " gives NaN. Use gpflow_decoupled.likelihoods.Ordinal(bin_edges), the same likelihood"
            " without infinite edges."
        )
    if is_logit(likelihood) and not isinstance(likelihood, BernoulliLogit):
        return (
            "GPflow takes the logarithm of a sigmoid that is rounded to 0 or 1 beyond |f| = 37. Use"
            " gpflow_decoupled.likelihoods.BernoulliLogit(), the same density without overflow."
        )
    return extreme_parameters(likelihood) or (
        "Its own parameters are moderate, so that f is too far from Y: scale Y, use a mean"
        " function, or start from a kernel with a smaller variance."
    )
