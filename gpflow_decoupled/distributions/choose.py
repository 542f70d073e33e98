"""A base by its name, or from a distribution of TensorFlow Probability."""

from __future__ import annotations

__all__ = ["BASES", "base_variable"]

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..errors import DataError, check_option
from .base import Base
from .closed_form import LaplaceBase, LogisticBase, NormalBase
from .generalized import GeneralizedNormalBase
from .mixture import NormalMixtureBase
from .skewed import SkewNormalBase
from .student_t import StudentTBase
from .tabulated import TabulatedBase
from .variance_gamma import VarianceGammaBase

_KINDS: tuple[type[Base], ...] = (
    NormalBase, LaplaceBase, LogisticBase, StudentTBase, SkewNormalBase, GeneralizedNormalBase, VarianceGammaBase,
    NormalMixtureBase,
)  # fmt: skip
BASES: dict[str, type[Base]] = {kind.name: kind for kind in _KINDS}


def base_variable(base: Any) -> Base:
    """The base for a name of `BASES`, for a `Base`, or for a scalar TFP distribution, whose shape is then fixed.

    Raises:
        DataError: a distribution without finite variance, or not scalar; the message says the fix.
        UnknownOptionError: a name that does not exist.
    """
    if isinstance(base, Base):
        return base
    if not isinstance(base, tfp.distributions.Distribution):
        check_option("base", base, BASES)
        return BASES[base]()
    if base.batch_shape.rank != 0 or base.event_shape.rank != 0:
        raise DataError(
            f"the base {base.name} has batch shape {base.batch_shape} and event shape {base.event_shape}; it must be one "
            "scalar distribution: the same for each dimension."
        )
    _refuse_without_variance(base)
    return TabulatedBase(lambda theta: _broadcast(base, theta), name=base.name)


def _refuse_without_variance(distribution: tfp.distributions.Distribution) -> None:
    try:
        variance = float(distribution.variance())
    except NotImplementedError:  # then the tabulation finds out
        variance = 1.0
    if not np.isfinite(variance):
        raise DataError(
            f"the base {distribution.name} has variance {variance}: affine-independent inference needs a finite one. Use "
            "lighter tails, for example StudentT with df=3."
        )


class _Cast:
    """A distribution whose log_prob takes and returns another precision, with the batch shape of some theta."""

    def __init__(self, distribution: tfp.distributions.Distribution, theta: tf.Tensor) -> None:
        self._distribution, self._theta = distribution, theta

    def log_prob(self, r: tf.Tensor) -> tf.Tensor:
        zero = tf.reduce_sum(self._theta, axis=-1)
        return tf.cast(self._distribution.log_prob(tf.cast(r, self._distribution.dtype)), r.dtype) + zero

    def sample(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = tf.concat([[n], tf.shape(self._theta)[:-1]], axis=0)
        return tf.cast(self._distribution.sample(shape, seed=seed), self._theta.dtype)


def _broadcast(distribution: tfp.distributions.Distribution, theta: tf.Tensor) -> Any:
    return _Cast(distribution, theta)
