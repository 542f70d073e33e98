"""Errors of failed steps, with the cause."""

from __future__ import annotations

__all__ = ["explain", "naming_observation", "restored", "unusable_observation"]

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import RegressionData
from gpflow.likelihoods import Likelihood

from ..covariances.latents import mix_outputs, prior_variance
from ..errors import NumericalError
from ..likelihoods.facts import name_of
from ..likelihoods.parameters import extreme_parameters
from ..linalg.cholesky import unsound
from ..models.checks import CheckedPredictions, Moments

RESTORED = " The model holds the last good parameters."
_LIKELY_FIXES = (
    'Likely fixes: a smaller natural_gradient or learning_rate, negative_precision="clip" for'
    " likelihoods that are not log-concave."
)


def explain(
    matrices: Mapping[str, tf.Tensor],
    batch: tuple[tf.Tensor, tf.Tensor],
    step: int,
    likelihood: Likelihood | None = None,
) -> NumericalError:
    """Return the error for a failed step.

    In this order: rows of the batch X [B, D], Y [B, P] that are not finite, a matrix without a
    Cholesky factor, the posterior precision or a gradient.

    :param matrices: the step's factorised matrices, by name.
    """
    for name, array in zip("XY", batch):
        bad = ~np.all(np.isfinite(array.numpy()), axis=1)
        if np.any(bad):
            return NumericalError(
                f"Step {step}: row {int(np.argmax(bad))} of this batch of {name} is not finite;"
                " remove such rows from the dataset." + RESTORED,
                matrix=name,
            )
    if (error := unsound(matrices)) is not None:
        return restored(error, step)
    extreme = "" if likelihood is None else extreme_parameters(likelihood)
    return NumericalError(
        f"Step {step}: the bound, one of its gradients, or the precision of q is not finite or not"
        " positive definite, though the prior's matrices are sound. "
        + (extreme or _LIKELY_FIXES)
        + RESTORED,
        matrix="precision of q",
    )


def restored(error: NumericalError, step: int) -> NumericalError:
    """Add to an error the number of the step, and that the model was restored."""
    return NumericalError(f"Step {step}: {error}{RESTORED}", matrix=error.matrix)


# ---
# The observation that makes a bound infinite or NaN.


_TOO_LARGE = 1e30
"""Nats. Some site losses are cut off above it, so that they stay finite."""
_Pair = tuple[tf.Tensor, tf.Tensor]
"""Mean and variance of f, [N, P] each."""


def unusable_observation(
    model: object,
    data: RegressionData | None,
    moments: _Pair | None = None,
    rows: np.ndarray | None = None,
) -> NumericalError | None:
    """Return the error for the first observation whose expected log density is not finite.

    :param data: X [N, D] and Y [N, P], or None for a model that owns them.
    :param moments: mean and variance of f at the data, [N, P] each.
    :param rows: their numbers in the whole data set [N].
    :return: None if none is found.
    """
    # Tries the given moments, the model's q(f), and for some models the prior.
    if not isinstance(model, CheckedPredictions):
        return None
    for (X, Y), at_place in _places(model, data, moments):
        try:
            at = at_place()
            values = model.expected_log_densities(at, (X, Y)).numpy()
        except (NumericalError, tf.errors.InvalidArgumentError):
            continue  # a matrix is the cause, and another error names it
        sound = tf.reduce_all(tf.math.is_finite(at.mean)) and tf.reduce_all(
            tf.math.is_finite(at.variance) & (at.variance >= 0.0)
        )
        if sound and np.any(_unusable(values)):
            return _error(model.likelihood, Y, at, values, rows)
    return None


@contextmanager
def naming_observation(model: object, moments: Callable[[], _Pair] | None = None) -> Iterator[None]:
    """Make a `NumericalError` raised inside name the observation at fault, if any.

    :param moments: computes the moments of f at the start of the run, after an error only.
    """
    try:
        yield
    except NumericalError as error:
        cause = unusable_observation(model, None, None if moments is None else moments())
        raise error if cause is None else cause from error


def _places(
    model: CheckedPredictions, data: RegressionData | None, moments: _Pair | None
) -> Iterator[tuple[RegressionData, Callable[[], Moments]]]:
    own = getattr(model, "data", None)
    here = own if data is None else data
    if here is None:
        return
    if moments is not None:
        yield here, lambda: Moments(*moments)
        if data is not None:
            return  # some of the rows, and the moments of all may cost too much
    whole = here if own is None else own
    yield whole, lambda: model.moments(whole if own is None else None)
    if model.starts_at_prior:
        yield whole, lambda: _prior_moments(model, whole[0])


def _prior_moments(model: CheckedPredictions, X: tf.Tensor) -> Moments:
    shape = [tf.shape(X)[0], model.num_latent_gps]
    variance = tf.transpose(prior_variance(model.kernel, X, full_cov=False))
    mean, variance = mix_outputs(
        model.kernel, tf.zeros(shape, X.dtype), tf.broadcast_to(variance, shape)
    )
    return Moments(mean + tf.cast(model.mean_function(X), X.dtype), variance)


def _error(
    likelihood: gl.Likelihood,
    Y: tf.Tensor,
    at: Moments,
    values: np.ndarray,
    rows: np.ndarray | None,
) -> NumericalError:
    bad = _unusable(values)
    row, name = int(np.argmax(bad)), name_of(likelihood)
    y, m, v = (
        np.array2string(np.asarray(part)[row], precision=4) for part in (Y, at.mean, at.variance)
    )
    where = (
        f"row {row} of the data of this step" if rows is None else f"row {rows[row]} of the data"
    )
    return NumericalError(
        f"The bound is not finite: the expected log density of {name} is {values[row]:.4g} at"
        f" {where}, Y = {y}, where f has mean {m} and variance {v} ({int(bad.sum())} of {len(bad)}"
        " rows are like that). " + _remedy(likelihood),
        matrix=f"expected log density of {name}",
    )


def _unusable(values: np.ndarray) -> np.ndarray:
    return ~(np.abs(values) < _TOO_LARGE)


def _remedy(likelihood: gl.Likelihood) -> str:
    return extreme_parameters(likelihood) or (
        "Its own parameters are moderate, so that f is too far from Y: scale Y, use a mean"
        " function, or start from a kernel with a smaller variance."
    )
