"""The contract of a basis."""

from __future__ import annotations

__all__ = ["Basis", "EAGER_ROWS", "Features", "GaussianPart", "State"]

import abc
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.kernels import Kernel

from ..covariances.latents import prior_variance
from ..summaries import one_line, short_table

# | symbol | code | shape |
# |---|---|---|
# | L, G | latent functions; groups of them that share kernel and points | scalars |
# | m, S (whitened) | `Gaussian.mean`, `Gaussian.root` with S = root root^T | [M, L], [L, M, M] |
# | A = L_b^-1 K_bx | `Features.minus` | [G, M, N] |
#
# All is in latent space, prior mean subtracted.


EAGER_ROWS = 8192
"""Inputs whose features exist at once in eager predictions of means and variances."""

State = Any
"""The NamedTuple that `factor` of a basis returns, see `Basis.state_type`."""


class GaussianPart(NamedTuple):
    """A Gaussian part of q in whitened coordinates, with prior N(0, I).

    Example::

        state = basis.factor(kernel)
        (part,) = basis.gaussians(state)
        covariance = tf.matmul(part.root, part.root, transpose_b=True)  # [L, M, M]
    """

    mean: tf.Tensor | None
    """[M, L]; None if the mean of q(f) is parametrised separately."""
    root: tf.Tensor
    """[L, M, M], lower triangular, S = root root^T."""


class Features(NamedTuple):
    """Mean and variances of q(f) at N inputs: var = k(x, x) - sum minus^2 + sum plus^2.

    Example::

        features = basis.features(basis.factor(kernel), kernel, X)
        variance = basis.variance(features, kernel, X)  # [N, L]
    """

    mean: tf.Tensor
    """[N, L]."""
    minus: tuple[tf.Tensor, ...]
    """Each [G, M, N]; first the projections A of the Gaussian parts, in order."""
    plus: tuple[tf.Tensor, ...]
    """Each [L, M, N]."""


class Basis(Module, abc.ABC):
    """A parametrisation of the approximate posterior q(f).

    `factor` does all factorisations and returns an immutable state; the other methods are pure
    functions of it. Subclass `InducingBasis` for inducing points.

    Example::

        basis = CoupledBasis(Z)
        state = basis.factor(kernel)
        mean, variance = basis.mean_and_cov(state, kernel, X)  # [N, L] each
        kl = basis.prior_kl(state)  # nats
    """

    state_type: type
    """The NamedTuple of `factor`; fields after `ok` serve gradients and the divergence only."""
    num_latent_gps: int
    """L, the number of latent functions."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Numbers of points of each kind, by name."""
        return {}

    def __repr__(self) -> str:
        return one_line(self, **self.sizes, latents=self.num_latent_gps)

    def _repr_html_(self) -> str:
        return short_table(super()._repr_html_())

    @abc.abstractmethod
    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> State:
        """Do all factorisations.

        :param kernel: the prior covariance of f.
        :param rows: [m] indices for the estimate of the mean's norm, drawn if needed and not given.
        :param with_kl: False leaves out the terms of `prior_kl`.
        :return: a NamedTuple of tensors whose field `ok` says if all factorisations succeeded.
        """

    @abc.abstractmethod
    def features(self, state: State, kernel: Kernel, X: tf.Tensor) -> Features:
        """Mean and variances of q(f) at X [N, D] as `Features`, without the mean function."""

    @abc.abstractmethod
    def prior_kl(self, state: State) -> tf.Tensor:
        """KL[q(f) || p(f)] in nats, a scalar; it never needs data."""

    @abc.abstractmethod
    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """The matrices that `factor` factorises, by name, for its error messages."""

    def mean_and_cov(
        self, state: State, kernel: Kernel, Xnew: TensorType, full_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of q(f), without the mean function.

        :param Xnew: inputs [..., N, D].
        :param full_cov: return covariances between inputs; otherwise eager calls take blocks of
            8192 rows.
        :return: mean [..., N, L] and variances [..., N, L], or covariances [..., L, N, N].
        """
        Xnew = tf.convert_to_tensor(Xnew)
        batch = tf.shape(Xnew)[:-1]
        flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]]) if Xnew.shape.rank != 2 else Xnew
        columns = tf.concat([batch, [self.num_latent_gps]], axis=0)
        if not full_cov:
            mean, variance = self.marginals(state, kernel, flat, floored=True)
            return tf.reshape(mean, columns), tf.reshape(variance, columns)
        features = self.features(state, kernel, flat)
        mean = tf.reshape(features.mean, columns)
        cov = prior_variance(kernel, Xnew, full_cov=True)  # [..., G, N, N]
        for feature in features.minus:
            cov -= _outer(feature, batch)
        for feature in features.plus:
            cov += _outer(feature, batch)
        shape = tf.concat([batch[:-1], [self.num_latent_gps], batch[-1:], batch[-1:]], axis=0)
        return mean, tf.broadcast_to(cov, shape)

    def marginals(
        self, state: State, kernel: Kernel, X: tf.Tensor, *, floored: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N, L] of q(f) at X [N, D], without the mean function.

        Eager calls take blocks of 8192 rows; `floored` as in `variance`.
        """
        if tf.executing_eagerly() and X.shape[0] > EAGER_ROWS:
            starts = range(0, X.shape[0], EAGER_ROWS)
            blocks = [
                self.marginals(state, kernel, X[i : i + EAGER_ROWS], floored=floored)
                for i in starts
            ]
            mean, variance = (tf.concat(parts, axis=0) for parts in zip(*blocks))
            return mean, variance
        features = self.features(state, kernel, X)
        return features.mean, self.variance(features, kernel, X, floored=floored)

    def variance(
        self, features: Features, kernel: Kernel, X: tf.Tensor, *, floored: bool = False
    ) -> tf.Tensor:
        """Marginal variances [N, L] at X [N, D] from the features, as sums of squares.

        :param floored: keep the residual prior variance non-negative despite round-off.
        """
        # (D20)
        variance = prior_variance(kernel, X, full_cov=False)  # [G, N]
        for feature in features.minus:
            variance -= tf.reduce_sum(tf.square(feature), axis=-2)
        variance = tf.maximum(variance, 0.0) if floored else variance
        for feature in features.plus:
            variance += tf.reduce_sum(tf.square(feature), axis=-2)
        return tf.broadcast_to(tf.transpose(variance), tf.shape(features.mean))


def _outer(feature: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    rank = batch.shape[0]
    parted = tf.reshape(feature, tf.concat([tf.shape(feature)[:2], batch], axis=0))
    order = list(range(2, 1 + rank)) + [0, 1, 1 + rank]
    parted = tf.transpose(parted, order)
    return tf.matmul(parted, parted, transpose_a=True)
