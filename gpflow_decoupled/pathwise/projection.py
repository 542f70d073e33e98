"""Whitened values of prior draws at conditioning points."""

# A Gaussian basis gives f(x) the variance k(x, x) - |minus(x)|^2 + |plus(x)|^2. For eta ~ N(0, I),
# a function of a prior draw g and fresh noise with cov(g(x), eta) = minus(x), g(x) - minus(x)^T eta
# has the covariance of the first two terms (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309).
# This eta is
#
# | the basis conditions on | eta |
# |---|---|
# | values at inducing points, K_b = L L^T | L^-1 g(beta) |
# | sites of precision W, I + W^1/2 K W^1/2 = L_B L_B^T | L_B^-1 (W^1/2 g(X) + noise) |

from __future__ import annotations

__all__ = ["prior_coordinates"]

from functools import singledispatch

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from ..bases import (
    Basis,
    CoupledBasis,
    DecoupledBasis,
    DualBasis,
    HybridBasis,
    SiteBasis,
    SolveBasis,
)
from ..bases.coupled import CoupledState
from ..bases.decoupled import DecoupledState
from ..bases.dual import DualState
from ..bases.hybrid import HybridState
from ..bases.orthogonal_mean import OrthogonalMeanBasis, OrthogonalState
from ..bases.site import SiteState
from ..bases.solve import SolveState
from ..covariances.latents import gram, gram_to_factor, split_latents
from ..covariances.residual import residual_gram, residual_gram_to_factor
from ..errors import DataError, ModelError
from .arrays import normal, project, solve_draws
from .prior import PriorDraws


@singledispatch
def prior_coordinates(
    basis: Basis,
    state: tuple[tf.Tensor, ...],
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
) -> tuple[tf.Tensor, ...]:
    """Return the whitened values eta of prior draws; register an implementation for a new basis.

    :param state: of `basis.factor(kernel)`.
    :return: one array [S, L, M] per `Features.minus`, in order.
    :raises DataError: for inducing variables that are not points.

    Example::

        @prior_coordinates.register
        def _(basis: MyBasis, state, kernel, prior, rng):
            values = prior(basis.beta.Z)  # [S, L, M]
            return (tf.linalg.triangular_solve(state.chol, values[..., None])[..., 0],)
    """
    raise ModelError(
        f"Pathwise samples are not known for {type(basis).__name__}: for draws at given inputs use"
        " predict_f_samples, or register the basis with pathwise.prior_coordinates."
    )


@prior_coordinates.register(CoupledBasis)
@prior_coordinates.register(HybridBasis)
@prior_coordinates.register(OrthogonalMeanBasis)
def _of_inducing_points(
    basis: CoupledBasis | HybridBasis | OrthogonalMeanBasis | DecoupledBasis,
    state: CoupledState | HybridState | OrthogonalState | DecoupledState,
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
) -> tuple[tf.Tensor, ...]:
    """eta = L^-1 (g(beta) + noise), with noise of the jitter's variance in L L^T."""
    jitter = gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta)
    return (_whitened(state.chol, prior(_points(kernel, basis.beta)), jitter, rng),)


@prior_coordinates.register
def _of_decoupled(
    basis: DecoupledBasis,
    state: DecoupledState,
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
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
def _of_solve(
    basis: SolveBasis,
    state: SolveState,
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
) -> tuple[tf.Tensor, ...]:
    jitter = gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta)
    eta = _whitened(state.chol, prior(_points(kernel, basis.beta)), jitter, rng)
    residual = prior(_points(kernel, basis.gamma)) - project(state.projection, eta)
    points = (basis.beta, basis.gamma)
    jitter = residual_gram_to_factor(kernel, *points) - residual_gram(kernel, *points)
    return eta, _whitened(state.chol_gamma, residual, jitter, rng)


@prior_coordinates.register(SiteBasis)
@prior_coordinates.register(DualBasis)
def _of_observations(
    basis: SiteBasis | DualBasis,
    state: SiteState | DualState,
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
) -> tuple[tf.Tensor, ...]:
    if getattr(basis, "form", "function") != "function":
        raise DataError(
            "Pathwise samples need a model in function space. The posterior of a model in weight"
            " space is one of its weights: draw these from models.weights_posterior(model)."
        )
    values = prior(basis.X)
    return (solve_draws(state.chol, state.scale * values + normal(values, rng)),)


def _points(kernel: Kernel, points: InducingVariables) -> tf.Tensor | list[tf.Tensor]:
    pairs = split_latents(kernel, points)
    for _, z in pairs:
        if type(z) is not InducingPoints:
            raise DataError(
                f"Pathwise samples need inducing points, not {type(z).__name__}: for draws at given"
                " inputs use predict_f_samples."
            )
    inputs = [tf.convert_to_tensor(z.Z) for _, z in pairs]
    return inputs[0] if len(inputs) == 1 else inputs


def _whitened(
    chol: tf.Tensor, values: tf.Tensor, jitter: tf.Tensor, rng: np.random.Generator
) -> tf.Tensor:
    return solve_draws(chol, values + _deviation(jitter) * normal(values, rng))


def _deviation(jitter: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(tf.linalg.diag_part(jitter), 0.0))
