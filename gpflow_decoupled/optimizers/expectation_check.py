"""A check at the end of a run: whether the data term of its bound is the integral that it stands
for.
"""

from __future__ import annotations

__all__ = ["warn_of_quadrature"]

import warnings

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import RegressionData

from ..likelihoods import BernoulliProbit, QuadratureLoss, site_loss
from ..likelihoods.accuracy import accurate_expectations, integrates_by_nodes, nodes_of, with_nodes
from ..models import CVIGP, LCLGP, AffineIndependentGP, BasisGP
from ..posteriors import mix_outputs
from .frequency_check import frequency_warning

_ROWS = 2048
"""Observations that are checked at most, evenly spaced"""
_PER_OBSERVATION, _IN_ALL, _NEGLIGIBLE = 1e-3, 0.1, 1e-5
"""Nats: a warning is due at an error above the first per observation, or above the second of the
whole bound; the third per observation is never worth one"""
_MORE = (50, 100, 200)
"""Numbers of nodes that the warning may advise"""
_INSTEAD: tuple[tuple[type[gl.Likelihood], str], ...] = (
    (gl.StudentT, "an LCLGP, whose nodes follow a Student-t, or likelihoods.Laplace"),
    (gl.Bernoulli, "likelihoods.BernoulliLogit"),
    (BernoulliProbit, "likelihoods.BernoulliLogit"),
)
"""Likelihoods, and what to use in their place"""


def warn_of_quadrature(
    model: object, elbo: float, data: RegressionData | None = None, stacklevel: int = 3
) -> None:
    """Warn where the expected log densities at the model's q(f) are not what the bound of a run
    takes for them.

    Not covered are likelihoods with more than two latent functions per observation, where finer
    rules have too many nodes, but for `MultiClass`; expectations from draws, which `Softmax` and
    `models.MonteCarlo` take; and priors of weights that are not Gaussian.

    :param model: a `CVIGP`, `LCLGP` or `AffineIndependentGP`, or a `BasisGP` with `data`; other
        models are not checked.
    :param elbo: the bound that the run reports, in nats.
    :param data: X [N, D] and Y [N, P] of a `BasisGP`, or a part of them.
    :param stacklevel: as of `warnings.warn`.

    At most 2048 observations are checked, evenly spaced, and their error is scaled to all. Cost: as
    of a prediction for them.
    """
    if isinstance(model, AffineIndependentGP) and np.isfinite(elbo):
        message = frequency_warning(model, elbo, _ROWS, _allowed(int(model.data[0].shape[0])))
        if message is not None:
            warnings.warn(message, stacklevel=stacklevel)
        return
    found = _moments(model, data)
    if found is None or not np.isfinite(elbo):
        return
    likelihood, (X, Y), mean, variance, number = found
    if isinstance(model, LCLGP):
        usual = -tf.reduce_sum(site_loss(likelihood, Y).value(mean, tf.sqrt(variance)), axis=1)
    else:
        usual = likelihood.variational_expectations(X, mean, variance, Y)
    accurate = accurate_expectations(likelihood, X, mean, variance, Y)
    if accurate is None:
        return
    error = usual.numpy() - accurate
    error = np.where(np.isfinite(error), error, 0.0)
    gap = number * float(np.mean(error, dtype=float))
    if abs(gap) <= _allowed(number):
        return
    worst = int(np.argmax(np.abs(error)))
    y, m, s = (part.numpy()[worst, 0] for part in (Y, mean, tf.sqrt(variance)))
    warnings.warn(
        f"The bound of {elbo:.6g} nats is not accurate: with the same q(f) it is {elbo - gap:.6g}"
        f" nats where the expectations of {type(likelihood).__name__} are integrated by a fine"
        f" rule. Its {nodes_of(likelihood)} Gauss-Hermite nodes are too few for a q(f) that is wide"
        f" beside the likelihood, by up to {abs(error[worst]):.2g} nats per observation (at Y ="
        f" {y:.4g}, where f has mean {m:.4g} and standard deviation {s:.4g}). "
        + _advice(likelihood, (X, mean, variance, Y), accurate, number),
        stacklevel=stacklevel,
    )


Found = tuple[gl.Likelihood, tuple[tf.Tensor, tf.Tensor], tf.Tensor, tf.Tensor, int]
"""Likelihood, data, mean and variance of f at them [n, P], and the number of all observations N"""


def _moments(model: object, data: RegressionData | None) -> Found | None:
    """What the check needs of some of the observations; None for a model that is not checked."""
    if isinstance(model, (CVIGP, LCLGP)):
        data, number = model.data, model.basis.num_data
        if isinstance(model, LCLGP) and not isinstance(model.observation_loss(), QuadratureLoss):
            return None  # closed forms
    elif isinstance(model, BasisGP) and data is not None and model.expectations is None:
        number = int(data[0].shape[0]) if model.num_data is None else int(model.num_data)
    else:
        return None
    # 1) some rows, and whether nodes matter to their likelihood at all, for which any moments will
    # do
    rows = slice(None, None, -(-int(data[0].shape[0]) // _ROWS))
    X, Y = (array[rows] for array in data)
    ones = tf.ones([tf.shape(X)[0], model.num_latent_gps], X.dtype)
    trial = mix_outputs(model.kernel, 0.3 * ones, ones)
    if not integrates_by_nodes(model.likelihood, X, trial[0], trial[1], Y):
        return None
    # 2) the moments
    if isinstance(model, BasisGP):
        return model.likelihood, (X, Y), *model.predict_f(X), number
    state = model.basis.factor(model.kernel)
    of_data = (part[: model.basis.num_data][rows] for part in (state.mean, state.variance))
    mean, variance = mix_outputs(model.kernel, *of_data)
    return model.likelihood, (X, Y), mean + model.mean_function(X), variance, number


def _advice(
    likelihood: gl.Likelihood, where: tuple[tf.Tensor, ...], accurate: np.ndarray, number: int
) -> str:
    """What to do: the least number of nodes that is enough at this q(f), or what needs none."""
    for nodes in _MORE:
        error = with_nodes(likelihood, nodes).variational_expectations(*where).numpy() - accurate
        if number * abs(float(np.mean(error))) <= 0.1 * _allowed(number):
            if isinstance(likelihood, gl.MultiClass):
                return f"Set num_gauss_hermite_points = {nodes} of the likelihood and train again."
            rule = (
                f"gpflow.quadrature.NDiagGHQuadrature({getattr(likelihood.quadrature, 'dim', 1)},"
                f" {nodes})"
            )
            return f"Give the likelihood more nodes, quadrature={rule}, and train again."
    instead = next((name for kind, name in _INSTEAD if isinstance(likelihood, kind)), None)
    others = "" if instead is None else f"; or use {instead}, whose expectations need no such nodes"
    return (
        f"{_MORE[-1]} nodes would not do either: use a kernel with a smaller variance or a wider"
        f" likelihood{others}."
    )


def _allowed(number: int) -> float:
    """The largest error of a bound, in nats, that is not worth a warning."""
    return max(min(_PER_OBSERVATION * number, _IN_ALL), _NEGLIGIBLE * number)
