"""The prior of a full GP's sites: matrix or chain."""

from __future__ import annotations

__all__ = ["ChainPrior", "DensePrior", "PriorAt", "SitePrior", "prior_of_sites"]

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.kernels import MultioutputKernel

from ...compilation import Compiled
from ...covariances.array_grams import array_gram
from ...covariances.latents import positive_gram
from ...models import CVIGP, LCLGP, StateSpaceGP
from ...optimizers.best_sites import BestSites, Posterior, SiteMoments, dense_posterior
from ...optimizers.log_coordinates import LogCoordinates

_LEAST = 1e-20
"""Prior variance, relative to the largest, of a row where the kernel has none."""


class PriorAt(NamedTuple):
    """The prior at one vector of hyperparameters."""

    posterior: Posterior
    """Of sites."""
    gradient: Callable[[BestSites], np.ndarray]
    """By the kernel [n] at fixed moments, where it is closed; zeros where `SitePrior.term` has it.
    """


class SitePrior(Protocol):
    """The prior of a full GP, for the search of its best sites."""

    is_closed: bool
    """True if `PriorAt.gradient` has all of the kernel, and `term` none."""

    def at(self, x: np.ndarray) -> PriorAt:
        """The prior at coordinates x [n], to which the Parameters have been set."""

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """Arrays for `term`."""

    def term(self, *weights: tf.Tensor) -> tf.Tensor:
        """A scalar whose gradient by the kernel is the bound's at fixed moments."""


def prior_of_sites(
    model: CVIGP | LCLGP, coordinates: LogCoordinates, compile: bool = True
) -> SitePrior:
    """The prior of a model.

    :param coordinates: of its hyperparameters.
    """
    use: Callable[[Any], Any] = Compiled if compile else _eager
    if isinstance(model, StateSpaceGP):
        return ChainPrior(model, use)
    return DensePrior(model, coordinates, use)


class DensePrior:
    """K [G, N, N], by arrays for usual kernels. Its gradient is 1/2 (alpha alpha^T - (K + W^-1)^-1)
    by K.
    """

    def __init__(
        self, model: CVIGP | LCLGP, coordinates: LogCoordinates, use: Callable[[Any], Any]
    ) -> None:
        self.model, self.coordinates = model, coordinates
        single = not isinstance(model.kernel, MultioutputKernel) and coordinates.is_closed
        self.gram = array_gram(model.kernel, model.data[0].numpy()) if single else None
        self.is_closed = self.gram is not None
        self.values_at = coordinates.reader(model.kernel.parameters if single else ())
        self._covary = use(self._prior)

    def at(self, x: np.ndarray) -> PriorAt:
        """By LAPACK; 2/3 N^3 per latent and call of the posterior."""
        if self.gram is None:
            K = np.asarray(self._covary(), np.float64)
            return PriorAt(dense_posterior(K), lambda _: np.zeros_like(x))
        K, back = self.gram(self.values_at(x))
        diagonal = np.diag(K)
        K[np.diag_indices_from(K)] = np.maximum(diagonal, _LEAST * np.max(diagonal))

        def gradient(found: BestSites) -> np.ndarray:
            (of_K,) = self.weights(found)
            return self.coordinates.gradient_by_parameters(x, back(np.sum(of_K, axis=0)))

        return PriorAt(dense_posterior(np.asarray(K, np.float64)[None]), gradient)

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """The gradient by K [L, N, N]."""
        assert found.at.latents is not None
        return (np.stack([one.of_covariance() for one in found.at.latents]),)

    def term(self, of_K: tf.Tensor) -> tf.Tensor:
        """The sum of K times its gradient."""
        K = self._prior()
        of_K = of_K if K.shape[0] == of_K.shape[0] else tf.reduce_sum(of_K, 0, True)
        return tf.reduce_sum(K * of_K)

    def _prior(self) -> tf.Tensor:
        return positive_gram(self.model.kernel, self.model.basis.points)


class ChainPrior:
    """The chain of a `StateSpaceGP`: filter and smoother in place of factorisations.

    At fixed sites log Z has the gradient of the bound, since the sites are the best.
    """

    is_closed = False

    def __init__(self, model: StateSpaceGP, use: Callable[[Any], Any]) -> None:
        self.model = model
        self._chain, self._moments = use(self._prior), use(self._at)

    def at(self, x: np.ndarray) -> PriorAt:
        """By filter and smoother; 6 N L d^3 a call of the posterior. Its gradient is in `term`."""
        prior = self._chain()

        def posterior(nu: np.ndarray, tau: np.ndarray) -> SiteMoments | None:
            sites = (tf.constant(part, prior.dtype) for part in (nu, tau))
            mean, variance, divergence, ok = self._moments(prior, *sites)
            if not ok or np.any(variance.numpy() <= 0.0):
                return None
            u, v = (np.asarray(part, np.float64) for part in (mean, variance))
            return SiteMoments(u, v, float(divergence))

        return PriorAt(posterior, lambda _: np.zeros_like(x))

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """The sites."""
        return found.nu, found.tau

    def term(self, nu: tf.Tensor, tau: tf.Tensor) -> tf.Tensor:
        """log Z of the sites."""
        basis = self.model.basis
        return basis.log_partition(basis.state_at(self._prior(), nu, tau))

    def _prior(self) -> Any:
        return self.model.basis.prior(self.model.kernel)

    def _at(self, prior: Any, nu: tf.Tensor, tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
        basis = self.model.basis
        state = basis.state_at(prior, nu, tau)
        return state.mean, state.variance, basis.prior_kl(state), state.ok


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
