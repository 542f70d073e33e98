"""Find a base distribution by name."""

from __future__ import annotations

__all__ = ["BASES", "BaseLike", "base_variable"]

from typing import TypeAlias

import numpy as np
import tensorflow as tf

from ..errors import DataError, check_option
from ..probability import tfp
from .base_density import Base, Seed
from .closed_form import LaplaceBase, LogisticBase, NormalBase
from .generalized import GeneralizedNormalBase
from .mixture import NormalMixtureBase
from .skewed import SkewNormalBase
from .student_t import StudentTBase
from .tabulated import TabulatedBase
from .variance_gamma import VarianceGammaBase

_KINDS: tuple[type[Base], ...] = (
    NormalBase,
    LaplaceBase,
    LogisticBase,
    StudentTBase,
    SkewNormalBase,
    GeneralizedNormalBase,
    VarianceGammaBase,
    NormalMixtureBase,
)
BASES: dict[str, type[Base]] = {kind.name: kind for kind in _KINDS}
"""Base distributions by name."""
BaseLike: TypeAlias = str | Base | tfp.distributions.Distribution
"""A name of `BASES`, a `Base`, or a scalar TFP distribution."""


def base_variable(base: BaseLike) -> Base:
    """Return the base distribution for a name, an object or a scalar TFP distribution.

    :param base: a name of `BASES`; a `Base`, returned unchanged; or a scalar TFP distribution of
        finite variance, which is tabulated.

    Example::

        skewed = base_variable("skew_normal")
        gumbel = base_variable(tfp.distributions.Gumbel(np.float64(0.0), np.float64(1.0)))
        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=gumbel
        )
    """
    if isinstance(base, Base):
        return base
    if not isinstance(base, tfp.distributions.Distribution):
        check_option("base", base, BASES)
        return BASES[base]()
    if base.batch_shape.rank != 0 or base.event_shape.rank != 0:
        raise DataError(
            f"The base distribution {base.name} has batch shape {base.batch_shape} and event shape"
            f" {base.event_shape}; it must be one scalar distribution, the same for each dimension."
        )
    _refuse_without_variance(base)
    return TabulatedBase(lambda theta: _Cast(base, theta), name=base.name)


def _refuse_without_variance(distribution: tfp.distributions.Distribution) -> None:
    try:
        variance = float(distribution.variance())
    except NotImplementedError:  # the tabulation will check the second moment
        variance = 1.0
    if not np.isfinite(variance):
        raise DataError(
            f"The base distribution {distribution.name} has variance {variance}: affine-independent"
            " inference needs a finite one. Use a distribution with lighter tails, for example"
            " StudentT with df=3."
        )


class _Cast:
    def __init__(self, distribution: tfp.distributions.Distribution, theta: tf.Tensor) -> None:
        self._distribution, self._theta = distribution, theta

    def log_prob(self, r: tf.Tensor) -> tf.Tensor:
        zero = tf.reduce_sum(self._theta, axis=-1)
        return (
            tf.cast(self._distribution.log_prob(tf.cast(r, self._distribution.dtype)), r.dtype)
            + zero
        )

    def sample(self, n: int | tf.Tensor, seed: Seed = None) -> tf.Tensor:
        shape = tf.concat([[n], tf.shape(self._theta)[:-1]], axis=0)
        return tf.cast(self._distribution.sample(shape, seed=seed), self._theta.dtype)
