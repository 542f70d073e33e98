"""Where the best sites of a full GP come from, and the gradient by its kernel: matrix or chain."""

from __future__ import annotations

__all__ = ["ChainPrior", "DensePrior", "SitePrior", "prior_of_sites"]

from collections.abc import Callable
from typing import Any, Protocol

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


class SitePrior(Protocol):
    """The prior of a full GP, for the search of its best sites."""

    is_closed: bool
    """True if `gradient` has all of the kernel, and `term` none."""

    def posterior(self) -> Posterior:
        """The posterior of sites at the present kernel."""

    def gradient(self, x: np.ndarray, found: BestSites) -> np.ndarray:
        """The gradient [n] of the bound at fixed moments, by the kernel, where it is closed."""

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
        self._covary = use(self._prior)

    def posterior(self) -> Posterior:
        """By LAPACK; 2/3 N^3 per latent and call."""
        return dense_posterior(self._K())

    def gradient(self, x: np.ndarray, found: BestSites) -> np.ndarray:
        """See `SitePrior.gradient`."""
        if self.gram is None:
            return np.zeros_like(x)
        (of_K,) = self.weights(found)
        by_variable = {id(v): np.zeros(v.shape) for v in self.coordinates.variables}
        for parameter, part in self.gram(_value)[1](np.sum(of_K, axis=0)):
            if (key := id(parameter.unconstrained_variable)) in by_variable:
                by_variable[key] = by_variable[key] + part
        return self.coordinates.gradient_by_values(x, list(by_variable.values()))

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """The gradient by K [L, N, N]."""
        assert found.at.latents is not None
        return (np.stack([one.of_covariance() for one in found.at.latents]),)

    def term(self, of_K: tf.Tensor) -> tf.Tensor:
        """The sum of K times its gradient."""
        K = self._prior()
        of_K = of_K if K.shape[0] == of_K.shape[0] else tf.reduce_sum(of_K, 0, True)
        return tf.reduce_sum(K * of_K)

    def _K(self) -> np.ndarray:
        if self.gram is None:
            return np.asarray(self._covary(), np.float64)
        K, _ = self.gram(_value)
        diagonal = np.diag(K)
        K[np.diag_indices_from(K)] = np.maximum(diagonal, _LEAST * np.max(diagonal))
        return np.asarray(K, np.float64)[None]

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

    def posterior(self) -> Posterior:
        """By filter and smoother; 6 N L d^3 a call."""
        prior = self._chain()

        def posterior(nu: np.ndarray, tau: np.ndarray) -> SiteMoments | None:
            sites = (tf.constant(part, prior.dtype) for part in (nu, tau))
            mean, variance, divergence, ok = self._moments(prior, *sites)
            if not ok or np.any(variance.numpy() <= 0.0):
                return None
            u, v = (np.asarray(part, np.float64) for part in (mean, variance))
            return SiteMoments(u, v, float(divergence))

        return posterior

    def gradient(self, x: np.ndarray, found: BestSites) -> np.ndarray:
        """Zero: see `term`."""
        return np.zeros_like(x)

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


def _value(parameter: tf.Module) -> np.ndarray:
    return parameter.numpy()


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
