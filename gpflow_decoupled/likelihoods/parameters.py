"""Parameters of likelihoods."""

from __future__ import annotations

__all__ = [
    "BINARY", "COUNTS", "NOT_NEGATIVE", "NumberedLikelihood", "POSITIVE", "Support",
    "UNIT_INTERVAL", "classes", "constant_parameter", "extreme_parameters", "is_gaussian",
    "noise_variance_at",
    "parameter_per_site", "positive_parameter", "share_parameter", "single_noise_variance",
]  # fmt: skip

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_likelihood_positive_minimum
from gpflow.functions import Function
from gpflow.likelihoods import Gaussian, Likelihood, ScalarLikelihood
from gpflow.utilities import parameter_dict, positive

from ..errors import DataError
from ..probability import tfp
from ..summaries import short_repr

# ---
# Sets of labels that likelihoods accept.


class Support(NamedTuple):
    """The labels that a likelihood accepts.

    Example::

        angles = Support("angles from 0 to 2 pi", lambda Y: (Y >= 0) & (Y <= 2 * np.pi))
        declare_site(VonMises, support=angles)
    """

    words: str
    """The set in words, as it follows "which takes" in an error message."""
    accepts: Callable[[np.ndarray], np.ndarray]
    """labels of any shape -> booleans of the same shape."""
    fix: str = "recode Y"
    """The last words of an error message: what to do about it."""


def classes(number: int) -> Support:
    """The whole numbers 0 to `number` - 1."""
    return Support(
        f"whole numbers 0 to {number - 1}", lambda Y: _whole(Y) & (Y >= 0) & (Y <= number - 1)
    )


def _whole(Y: np.ndarray) -> np.ndarray:
    return Y == np.round(Y)


BINARY = Support("0 or 1", lambda Y: (Y == 0) | (Y == 1))
COUNTS = Support("counts 0, 1, 2, ...", lambda Y: _whole(Y) & (Y >= 0))
NOT_NEGATIVE = Support("numbers of at least 0", lambda Y: Y >= 0)
POSITIVE = Support("numbers above 0", lambda Y: Y > 0)
UNIT_INTERVAL = Support("numbers strictly between 0 and 1", lambda Y: (Y > 0) & (Y < 1))


# ---
# Likelihoods of observations with a known number.


class NumberedLikelihood(ScalarLikelihood):
    """A likelihood of y given one latent each, whose rows have a known number in a last column.

    Y is [N, P + 1]: P observations, and trials (`Binomial`) or a code of censoring
    (`CensoredNormal`). `build` takes it as the argument that `number` names. Predicted moments are
    for one trial, not censored.

    Example::

        class Successes(NumberedLikelihood):
            number = "trials"

            def _scalar_log_prob(self, X, F, Y):
                y, trials = self.split(Y)
                return y * F - trials * tf.nn.softplus(F)
    """

    number: ClassVar[str]
    """The name of the last column, in `row_likelihood.NEUTRAL`."""

    @staticmethod
    def split(Y: TensorType) -> tuple[TensorType, TensorType]:
        """y [..., P] and the numbers [..., 1] of Y [..., P + 1]."""
        return Y[..., :-1], Y[..., -1:]


# ---


_LEAST, _MOST = 1e-5, 1e8
"""Parameters outside of this range are named as likely causes of numbers that are not finite."""


def constant_parameter(
    parameter: TensorType | Function, name: str, positive: bool = False
) -> tf.Tensor:
    """Return a Parameter as a tensor that broadcasts to [N, L].

    :param positive: require values above 0.
    """
    if isinstance(parameter, Function):
        raise DataError(
            f"{name} is a {type(parameter).__name__}, a function of the inputs, and a site has the"
            " labels alone; pass a number, or an array [N, 1]."
        )
    tensor = tf.convert_to_tensor(parameter)
    if tf.executing_eagerly():
        values = np.asarray(tensor)
        good = np.isfinite(values) & ((values > 0) | (not positive))
        if not np.all(good):
            what = "positive and finite" if positive else "finite"
            raise DataError(f"{name} is {np.array2string(values, threshold=6)}; it must be {what}.")
    return tensor


def parameter_per_site(parameter: TensorType | Function, name: str, like: tf.Tensor) -> tf.Tensor:
    """Return a positive parameter [], [1], [N] or [N, 1] as [N], in the dtype of `like` [N]."""
    value = tf.cast(constant_parameter(parameter, name, positive=True), like.dtype)
    return tf.reshape(value, [-1]) + tf.zeros_like(like)


def positive_parameter(value: Parameter | npt.ArrayLike, name: str) -> Parameter:
    """Return a positive Parameter of the shape of `value`; a Parameter is returned, and shared."""
    if isinstance(value, Parameter):
        return value
    least = default_likelihood_positive_minimum()
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}={short_repr(value)} is not a number; pass a number above {least:g}."
        ) from error
    if np.asarray(value).dtype == bool:
        raise DataError(f"{name}={short_repr(value)} is no size; pass a number above {least:g}.")
    if not np.all(np.isfinite(numbers) & (numbers > least)):
        raise DataError(f"{name}={short_repr(value)} must be a finite number above {least:g}.")
    return Parameter(value, transform=positive(least))


def share_parameter(value: Parameter | npt.ArrayLike, name: str) -> Parameter:
    """Return a Parameter [...] between 0 and 1, both excluded; one that is passed is shared."""
    if isinstance(value, Parameter):
        return value
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if not np.all((numbers > 0.0) & (numbers < 1.0)):
        raise DataError(
            f"{name}={short_repr(value)} must be a number above 0 and below 1, for example 0.5."
        )
    return Parameter(value, transform=tfp.bijectors.Sigmoid())


def is_gaussian(likelihood: Likelihood | None) -> bool:
    """True for normal noise about f by GPflow's `Gaussian`, or a subclass with its density."""
    kind = type(likelihood)
    return isinstance(likelihood, Gaussian) and all(
        getattr(kind, name) is getattr(Gaussian, name) for name in ("_scalar_log_prob", "_variance")
    )


def single_noise_variance(likelihood: Likelihood) -> tf.Tensor | None:
    """The noise variance [] of a `Gaussian` with a single Parameter, else None."""
    if not is_gaussian(likelihood):
        return None
    parameter = likelihood.scale if likelihood.variance is None else likelihood.variance
    if isinstance(parameter, Function) or parameter.shape.num_elements() != 1:
        return None
    value = tf.reshape(parameter, [])
    return tf.square(value) if likelihood.variance is None else value


def noise_variance_at(likelihood: Gaussian, X: tf.Tensor) -> tf.Tensor:
    """The noise variance at X [N, D], [N, 1] or, with one for each output, [N, P] or [P]."""
    if isinstance(likelihood.variance, Parameter):
        return tf.convert_to_tensor(likelihood.variance)
    return likelihood.variance_at(X)


def extreme_parameters(likelihood: Likelihood) -> str:
    """A sentence on Parameters so extreme or non-finite that densities may overflow, or ""."""
    extreme = [
        f"{name.lstrip('.')} = {np.array2string(np.asarray(value), precision=4, threshold=6)}"
        for name, value in parameter_dict(likelihood).items()
        if np.any(~np.isfinite(value))
        or np.any(np.abs(value) < _LEAST)
        or np.any(np.abs(value) > _MOST)
    ]
    return (
        f"Out of range is {', '.join(extreme)} of the likelihood: start from another value."
        if extreme
        else ""
    )
