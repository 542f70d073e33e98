"""What a draw from the prior says about the values that a basis conditions on, in whitened coordinates.

Under every Gaussian basis var f(x) = k(x, x) - |minus(x)|^2 + |plus(x)|^2. If eta ~ N(0, I) is made from the prior draw g (and
fresh noise) so that cov(g(x), eta) = minus(x), then g(x) - minus(x)^T eta has the variance k - |minus|^2, at all x at once
(Matheron's rule; Wilson et al. 2020, arXiv:2002.09309). For inducing points eta = L^-1 g(beta), for observations with sites it
is L_B^-1 (Lambda^1/2 g(X) + noise).
"""

from __future__ import annotations

__all__ = ["prior_coordinates"]

from functools import singledispatch
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from ..bases import Basis, CoupledBasis, DecoupledBasis, DualBasis, HybridBasis, OrthogonalBasis, SiteBasis, SolveBasis
from ..covariances.latents import gram, gram_to_factor, split_latents
from ..covariances.residual import residual_gram
from ..errors import DataError
from ..linalg.cholesky import add_jitter
from .arrays import normal, project, solve_draws
from .prior import PriorDraws


@singledispatch
def prior_coordinates(
    basis: Basis, state: Any, kernel: Kernel, prior: PriorDraws, rng: np.random.Generator
) -> tuple[tf.Tensor, ...]:
    """Eta for each of the basis's `Features.minus`, each [S, L, M], from draws of the prior; register it for a basis of yours.

    Raises `DataError` for a basis that it is not known for, and for inducing variables that are not points.
    """
    raise DataError(
        f"Pathwise samples are not known for {type(basis).__name__}; use predict_f_samples, or register "
        "pathwise.prior_coordinates for it."
    )


@prior_coordinates.register(CoupledBasis)
@prior_coordinates.register(HybridBasis)
@prior_coordinates.register(OrthogonalBasis)
def _of_inducing_points(
    basis: Any, state: Any, kernel: Kernel, prior: PriorDraws, rng: np.random.Generator
) -> tuple[tf.Tensor, ...]:
    jitter = gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta)
    return (_whitened(state.chol, prior(_points(kernel, basis.beta)), jitter, rng),)


@prior_coordinates.register
def _of_decoupled(
    basis: DecoupledBasis, state: Any, kernel: Kernel, prior: PriorDraws, rng: np.random.Generator
) -> tuple[tf.Tensor, ...]:
    if basis.covariance == "coupled":
        return _of_inducing_points(basis, state, kernel, prior, rng)
    # (D7): V = (K_b^-1 + C C^T)^-1 on beta, as if C^T f(beta) were observed with unit noise
    jitter = _deviation(gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta))
    values = prior(_points(kernel, basis.beta))
    values += jitter * normal(values, rng)
    seen = tf.einsum("lmk,slm->slk", state.root, values)
    return (solve_draws(state.chol, seen + normal(seen, rng)),)


@prior_coordinates.register
def _ofsolve_draws(
    basis: SolveBasis, state: Any, kernel: Kernel, prior: PriorDraws, rng: np.random.Generator
) -> tuple[tf.Tensor, ...]:
    jitter = gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta)
    eta = _whitened(state.chol, prior(_points(kernel, basis.beta)), jitter, rng)
    residual = prior(_points(kernel, basis.gamma)) - project(state.projection, eta)
    C = residual_gram(kernel, basis.beta, basis.gamma)
    return eta, _whitened(state.chol_gamma, residual, add_jitter(C) - C, rng)


@prior_coordinates.register(SiteBasis)
@prior_coordinates.register(DualBasis)
def _of_observations(
    basis: Any, state: Any, kernel: Kernel, prior: PriorDraws, rng: np.random.Generator
) -> tuple[tf.Tensor, ...]:
    if getattr(basis, "form", "function") != "function":
        raise DataError("In the weight form draw the weights instead: see models.weights_posterior.")
    values = prior(basis.X)
    return (solve_draws(state.chol, state.scale * values + normal(values, rng)),)


def _points(kernel: Kernel, points: InducingVariables) -> tf.Tensor | list[tf.Tensor]:
    """The inputs [M, D] of each latent, or of all of them. Raises `DataError` for inducing variables that are no points."""
    pairs = split_latents(kernel, points)
    for _, z in pairs:
        if type(z) is not InducingPoints:
            raise DataError(f"Pathwise samples need inducing points, not {type(z).__name__}; use predict_f_samples.")
    inputs = [tf.convert_to_tensor(z.Z) for _, z in pairs]
    return inputs[0] if len(inputs) == 1 else inputs


def _whitened(chol: tf.Tensor, values: tf.Tensor, jitter: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    """L^-1 (values + noise of the jitter's variance), [S, L, M] for L [G, M, M]."""
    return solve_draws(chol, values + _deviation(jitter) * normal(values, rng))


def _deviation(jitter: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(tf.linalg.diag_part(jitter), 0.0))
