"""What every basis answers: a state, the moments of q(f), the divergence to the prior.

| symbol | code | shape |
|---|---|---|
| L, G | latent functions; groups that share kernel and points | scalars |
| m, S (whitened) | `Gaussian.mean`, `Gaussian.root` with S = root root^T | [M, L], [L, M, M] |
| A = L_b^-1 K_bx | `Features.minus` | [G, M, N] |

All live in prior-mean-centred latent space: the mean function and the mixing of outputs belong to the posterior.
"""

from __future__ import annotations

__all__ = ["Basis", "Features", "Gaussian", "norm_of"]

import abc
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import Module
from gpflow.kernels import Kernel

from ..covariances.latents import prior_variance
from ..linalg.whitening import Whitener
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator


class Gaussian(NamedTuple):
    """A Gaussian part of q in whitened coordinates, where its prior is N(0, I); natural gradients act on these."""

    mean: tf.Tensor | None
    """[M, L]; None where the basis ties only the covariance to this part."""
    root: tf.Tensor
    """[L, M, M], lower triangular, S = root root^T."""


class Features(NamedTuple):
    """Moments of q(f) at N inputs, as features: var = k(x, x) - sum minus^2 + sum plus^2."""

    mean: tf.Tensor
    """[N, L]"""
    minus: tuple
    """Each [G, M, N]; the first ones are the projections A of the basis's Gaussian parts, in their order."""
    plus: tuple
    """Each [L, M, N]."""


class Basis(Module, abc.ABC):
    """What q(f) is. State is immutable; `factor` does all factorisations, the rest are pure functions of its result."""

    state_type: type
    """The NamedTuple that `factor` returns; what follows its field `ok` serves gradients and the divergence alone."""
    num_latent_gps: int
    kernel_mean: KernelMean | None = None
    """The part of the mean that has points of its own, where there is one."""

    @abc.abstractmethod
    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> Any:
        """All factorisations, once: a NamedTuple of tensors with a field `ok`.

        :param rows: [m] indices for the estimate (D25) of the mean's norm; drawn afresh if the basis subsamples and
            none are given.
        :param with_kl: False leaves out what only `prior_kl` needs.
        """

    @abc.abstractmethod
    def features(self, state: Any, kernel: Kernel, X: tf.Tensor) -> Features:
        """Moments of q(f) at X [N, D] as `Features`, without the mean function."""

    @abc.abstractmethod
    def prior_kl(self, state: Any) -> tf.Tensor:
        """KL[q(f) || p(f)] in nats, a scalar; never needs data."""

    @abc.abstractmethod
    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """The matrices that `factor` factorises, by name, for the message when one of them fails."""

    def gaussians(self, state: Any) -> tuple[Gaussian, ...]:
        """The parts of q that have natural parameters, whitened; empty if there are none."""
        return ()

    def assign_gaussians(self, state: Any, new: tuple[Gaussian, ...]) -> None:
        """Write whitened parts back to the Parameters; `state` is the one they were derived from."""
        raise NotImplementedError(f"{type(self).__name__} has no natural parameters.")

    @property
    def holds_sites(self) -> bool:
        """Whether q's sites can be held while kernel and points move: there are Gaussians, and Parameters are whitened."""
        return False

    def whiteners(self, state: Any) -> tuple[Whitener, ...]:
        """The factor that whitens each part of `gaussians`; for bases that hold sites."""
        raise NotImplementedError(f"{type(self).__name__} does not hold sites.")

    def gaussian_parameters(self) -> tuple:
        """The Parameters that `assign_gaussians` writes; other optimizers leave them alone."""
        return ()

    def mean_coefficients(self, state: Any) -> tf.Tensor:
        """The raw coefficients [M, L] of the mean points, whatever coordinates the Parameter is in."""
        raise NotImplementedError(f"{type(self).__name__} has no mean points of its own.")

    def mean_operator(self, state: Any, kernel: Kernel, X: tf.Tensor, features: Features) -> MeanOperator:
        """The maps between mean coefficients and the mean at X [N, D]; forms K_gamma [M_gamma, M_gamma]."""
        raise NotImplementedError(f"{type(self).__name__} has no mean points of its own.")

    def moved(self, state: Any, kernel: Kernel, change: tf.Tensor) -> Any:
        """The state, as far as `gaussians` reads it, after the raw mean coefficients changed by `change` [M, L]."""
        return state

    def draw_rows(self, seed: tf.Tensor | None = None) -> tf.Tensor | None:
        """Indices [m] for the estimate of the mean's norm, or None if the basis computes it in full."""
        return None if self.kernel_mean is None else self.kernel_mean.draw_rows(seed)

    def refresh(self, kernel: Kernel) -> None:
        """Bring frozen preconditioners up to date with the kernel; q(f) does not change."""

    def mean_and_cov(
        self, state: Any, kernel: Kernel, Xnew: tf.Tensor, full_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of q(f) at Xnew [..., N, D], without the mean function.

        :return: mean [..., N, L] and variances [..., N, L], or covariances [..., L, N, N] if `full_cov`.
        """
        Xnew = tf.convert_to_tensor(Xnew)
        batch = tf.shape(Xnew)[:-1]
        flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]]) if Xnew.shape.rank != 2 else Xnew
        features = self.features(state, kernel, flat)
        mean = tf.reshape(features.mean, tf.concat([batch, [self.num_latent_gps]], axis=0))
        if not full_cov:
            variance = self.variance(features, kernel, flat)
            return mean, tf.reshape(variance, tf.concat([batch, [self.num_latent_gps]], axis=0))
        cov = prior_variance(kernel, Xnew, full_cov=True)  # [..., G, N, N]
        for feature in features.minus:
            cov -= _outer(feature, batch)
        for feature in features.plus:
            cov += _outer(feature, batch)
        shape = tf.concat([batch[:-1], [self.num_latent_gps], batch[-1:], batch[-1:]], axis=0)
        return mean, tf.broadcast_to(cov, shape)

    def variance(self, features: Features, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
        """Marginal variances [N, L] at X [N, D] as sums of squares: (D20)."""
        variance = prior_variance(kernel, X, full_cov=False)  # [G, N]
        for feature in features.minus:
            variance -= tf.reduce_sum(tf.square(feature), axis=-2)
        for feature in features.plus:
            variance += tf.reduce_sum(tf.square(feature), axis=-2)
        return tf.broadcast_to(tf.transpose(variance), tf.shape(features.mean))


def norm_of(state: Any) -> tf.Tensor:
    """The mean's squared norm, a scalar, of a state of `factor`. Raises `ValueError` if it was left out."""
    if state.norm is None:
        raise ValueError("This state was made for predictions (with_kl=False); call factor(kernel) for the divergence.")
    return state.norm


def _outer(feature: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """Feature [G, M, ...N] -> its Gram matrices [..., G, N, N]."""
    rank = batch.shape[0]
    parted = tf.reshape(feature, tf.concat([tf.shape(feature)[:2], batch], axis=0))
    order = list(range(2, 1 + rank)) + [0, 1, 1 + rank]
    parted = tf.transpose(parted, order)
    return tf.matmul(parted, parted, transpose_a=True)
