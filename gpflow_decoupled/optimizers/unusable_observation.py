"""Which observation makes a bound infinite or NaN, as an error that names it, its likelihood, and what to do."""

from __future__ import annotations

__all__ = ["unusable_observation"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import RegressionData
from gpflow.utilities import parameter_dict

from ..errors import NumericalError
from ..likelihoods import BernoulliLogit
from ..likelihoods.lookup import is_logit
from ..models import CVIGP, BasisGP
from ..posteriors import mix_outputs

_LEAST, _MOST = 1e-5, 1e8
"""Parameters of likelihoods outside of this range are named as likely causes"""


def unusable_observation(model: object, data: RegressionData | None) -> NumericalError | None:
    """The error for the first observation whose expected log density is not finite at the model's q(f).

    :param model: a `CVIGP` or a `BasisGP`; for other models there is no answer.
    :param data: X [N, D] and Y [N, P] at which the bound was not finite; a `CVIGP` reads its own.
    :return: None where all expectations are finite, or the moments of f themselves are not, so that the cause is elsewhere.
    """
    data = model.data if isinstance(model, CVIGP) else data
    if not isinstance(model, (CVIGP, BasisGP)) or data is None:
        return None
    try:
        mean, variance = _moments(model, data[0])
    except (NumericalError, tf.errors.InvalidArgumentError):  # a matrix is the cause, which others name
        return None
    X, Y = data
    if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(variance)) or not np.all(variance >= 0.0):
        return None
    likelihood = model.likelihood
    values = likelihood.variational_expectations(X, mean, variance, Y).numpy()
    bad = ~np.isfinite(values)
    if not np.any(bad):
        return None
    row = int(np.argmax(bad))
    y, m, v = (np.array2string(part.numpy()[row], precision=4) for part in (Y, mean, variance))
    return NumericalError(
        f"The bound is not finite: the expected log density of {type(likelihood).__name__} is {values[row]} at "
        f"row {row} of the data of this step, Y = {y}, where f has mean {m} and variance {v} ({int(bad.sum())} of {len(bad)} "
        "rows are like that). " + _remedy(likelihood),
        matrix=f"expected log density of {type(likelihood).__name__}",
    )


def _moments(model: CVIGP | BasisGP, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of f at X, which are a CVIGP's own inputs, [N, P] each."""
    if isinstance(model, BasisGP):
        return model.predict_f(X)
    state = model.basis.factor(model.kernel)
    mean, variance = mix_outputs(model.kernel, state.mean, state.variance)
    return mean + model.mean_function(X), variance


def _remedy(likelihood: gl.Likelihood) -> str:
    """The reason as far as it is known, and what to do."""
    if isinstance(likelihood, gl.Ordinal):
        return (
            "GPflow's Ordinal subtracts infinite bin edges for the first and the last class, which gives NaN. Give these "
            "classes finite edges: Ordinal(np.concatenate([[-1e3], bin_edges, [1e3]])) with the labels Y + 1."
        )
    if is_logit(likelihood) and not isinstance(likelihood, BernoulliLogit):
        return (
            "GPflow takes the logarithm of a sigmoid that is rounded to 0 or 1 beyond |f| = 37. Use "
            "gpflow_decoupled.likelihoods.BernoulliLogit(), the same density without overflow."
        )
    extreme = [
        f"{name.lstrip('.')} = {np.array2string(np.asarray(value), precision=4)}"
        for name, value in parameter_dict(likelihood).items()
        if np.any(~np.isfinite(value)) or np.any(np.abs(value) < _LEAST) or np.any(np.abs(value) > _MOST)
    ]
    if extreme:
        return f"Out of range is {', '.join(extreme)} of the likelihood: start from another value."
    return (
        "Its own parameters are moderate, so that f is too far from Y: scale Y, use a mean function, or start from a "
        "kernel with a smaller variance."
    )
