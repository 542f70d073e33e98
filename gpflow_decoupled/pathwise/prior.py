"""Draws from a GP prior."""

from __future__ import annotations

__all__ = ["PriorDraws", "draw_prior", "normal", "prior_coordinates", "project", "solve_draws"]

from collections.abc import Callable
from functools import singledispatch

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

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
from ..bases.orthogonal import HybridState, OrthogonalMeanBasis, OrthogonalState
from ..bases.site import SiteState
from ..bases.solve import SolveState
from ..covariances.latents import (
    gram,
    gram_to_factor,
    residual_gram,
    residual_gram_to_factor,
    split_latents,
)
from ..errors import DataError, ModelError
from ..linalg.conjugate_gradients import map_rows
from ..linalg.triangular import solve

# ---
# Products and solves for S draws of L latents, arrays [S, L, M].


# Matrices are [G, M, N] with G = L, or G = 1 if all latents share one.


def normal(like: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    """Standard normal numbers in the shape and dtype of `like`."""
    return tf.constant(rng.standard_normal(tuple(like.shape)), like.dtype)


def solve_draws(chol: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """L^-1 times draws [S, L, M], for a lower triangular L [G, M, M]."""
    columns = tf.transpose(values, [1, 2, 0])
    return tf.transpose(
        solve(tf.broadcast_to(chol, [columns.shape[0], *chol.shape[1:]]), columns), [2, 0, 1]
    )


def project(features: tf.Tensor, coordinates: tf.Tensor, own: bool = False) -> tf.Tensor:
    """Multiply transposed features by the coordinates of each draw.

    Features are [G, M, N], or [G, M, S N] if `own`, coordinates [S, L, M], the result [S, L, N].
    """
    if not own:
        return tf.transpose(
            tf.matmul(features, tf.transpose(coordinates, [1, 2, 0]), transpose_a=True), [2, 0, 1]
        )
    blocks = tf.reshape(features, [*features.shape[:2], coordinates.shape[0], -1])
    return tf.einsum(
        "gmsn,slm->sln" if features.shape[0] == 1 else "lmsn,slm->sln", blocks, coordinates
    )


# ---


# F draws of omega from a stationary kernel's spectral density give 2 F random features (Rahimi &
# Recht 2007)
#
#   phi(x) = sqrt(variance / F) (cos omega_1^T x, ..., cos omega_F^T x, sin omega_1^T x, ...)
#
# Each draw has frequencies of its own: the draws then have the kernel's covariance, whatever F is.
# With the same ones for all, every draw would have the features' error. For x in units of the
# lengthscales and z ~ N(0, I),
#
# | kernel | omega |
# |---|---|
# | SquaredExponential | z |
# | Matern, smoothness nu | z / sqrt(c / 2 nu), c ~ chi^2 with 2 nu degrees of freedom |
# | RationalQuadratic, alpha | z sqrt(s), s ~ Gamma(alpha, 1 / alpha) |
#
# Linear (one feature per column) and constant kernels are exact; a sum has the features of its
# terms.


Features = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""X [b or 1, N, D] and the numbers [b] of draws -> phi(X) of each, [b or 1, N, K]."""
_ENTRIES = 4_000_000
"""Most features of a block of draws, 32 MB in double precision."""
_DEGREES = {Matern12: 1, Matern32: 3, Matern52: 5}
"""2 nu."""
_KNOWN = (
    "SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic, Linear, Constant and sums"
    " of them"
)


class PriorDraws:
    """S functions drawn from the priors GP(0, k_l) of L latents, made by `draw_prior`.

    :param features: phi of each latent; latents with the same kernel share it.
    :param weights: w of each latent, [S, K].

    Example::

        prior = draw_prior([gpflow.kernels.Matern52()], 2, 10, 1000, np.random.default_rng(0))
        values = prior(X)  # [10, 1, N]
    """

    def __init__(self, features: list[Features], weights: list[tf.Tensor]) -> None:
        self.features, self.weights = features, weights

    @property
    def num_samples(self) -> int:
        """The number of functions S."""
        return int(self.weights[0].shape[0])

    def __call__(self, X: list[tf.Tensor] | tf.Tensor, own: bool = False) -> tf.Tensor:
        """Evaluate the functions; cost S N K, sines and cosines too, per latent.

        :param X: inputs [N, D], or a list with one array per latent.
        :param own: X is [S N, D], N inputs for each draw.
        :return: [S, L, N].
        """
        inputs = X if isinstance(X, list) else [X] * len(self.features)
        S, draws, values = self.num_samples, tf.range(self.num_samples), []
        for phi, w, x in zip(self.features, self.weights, inputs):

            def of_block(
                draws: tf.Tensor,
                w: tf.Tensor,
                *x: tf.Tensor,
                phi: Features = phi,
                X: tf.Tensor = x,
            ) -> tf.Tensor:
                return tf.linalg.matvec(phi(x[0] if x else X[None], draws), w)

            each = (tf.reshape(x, [S, -1, x.shape[-1]]),) if own else ()
            rows = None if x.shape[0] is None else x.shape[0] // (S if own else 1)
            size = max(1, _ENTRIES // max(1, rows * w.shape[1])) if rows else S if own else 1
            values.append(map_rows(of_block, (draws, w, *each), min(S, size), w.dtype))
        return tf.stack(values, axis=1)


def draw_prior(
    kernels: list[Kernel],
    num_dims: int,
    num_samples: int,
    num_frequencies: int,
    rng: np.random.Generator,
) -> PriorDraws:
    """Draw functions from the priors of several latents.

    :param kernels: per latent: SquaredExponential, Matern, RationalQuadratic, Linear, Constant or
        sums of them. Latents with the same kernel object share features, not weights.
    :param num_dims: columns of the inputs.
    :param num_samples: S, the number of draws.
    :param num_frequencies: F random frequencies per stationary kernel and draw: covariances over
        draws are exact, and a draw is Gaussian up to about 1 / sqrt(F).
    :param rng: the source of the draws.
    :raises DataError: for a kernel whose spectral density is not known here.

    Example::

        prior = draw_prior([gpflow.kernels.Matern52()], 2, 10, 1000, np.random.default_rng(0))
    """
    sizes = num_samples, num_dims, num_frequencies
    made = {id(kernel): _features(kernel, sizes, rng) for kernel in kernels}
    features = [made[id(kernel)] for kernel in kernels]
    probe = tf.zeros([1, 1, num_dims], kernels[0].parameters[0].dtype)
    weights = [
        tf.constant(rng.standard_normal((num_samples, phi(probe, [0]).shape[2])), probe.dtype)
        for phi in features
    ]
    return PriorDraws(features, weights)


def _features(kernel: Kernel, sizes: tuple[int, int, int], rng: np.random.Generator) -> Features:
    """Features of S draws; `sizes` are S, D and F."""
    if type(kernel) is Sum:
        parts = [_features(part, sizes, rng) for part in kernel.kernels]

        def joined(X: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            found = [phi(X, draws) for phi in parts]
            most = tf.reduce_max([tf.shape(part)[0] for part in found])
            return tf.concat(
                [tf.broadcast_to(p, [most, tf.shape(p)[1], p.shape[2]]) for p in found], axis=2
            )

        return joined
    if type(kernel) is Constant:
        return lambda X, draws: tf.sqrt(kernel.variance) * tf.ones_like(X[..., :1])
    if type(kernel) is Linear:
        return lambda X, draws: tf.sqrt(kernel.variance) * kernel.slice(X, None)[0]
    S, num_dims, count = sizes
    columns = kernel.slice(tf.zeros([1, num_dims]), None)[0].shape[1]
    omega = tf.constant(_frequencies(kernel, (S, columns, count), rng), kernel.parameters[0].dtype)

    def stationary(X: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        angles = tf.matmul(kernel.scale(kernel.slice(X, None)[0]), tf.gather(omega, draws))
        return tf.sqrt(kernel.variance / count) * tf.concat(
            [tf.cos(angles), tf.sin(angles)], axis=2
        )

    return stationary


def _frequencies(kernel: Kernel, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    z, each = rng.normal(size=shape), (shape[0], 1, shape[2])
    if type(kernel) is SquaredExponential:
        return z
    if type(kernel) in _DEGREES:
        degrees = _DEGREES[type(kernel)]
        return z / np.sqrt(rng.chisquare(degrees, each) / degrees)
    if type(kernel) is RationalQuadratic:
        alpha = float(tf.convert_to_tensor(kernel.alpha))
        return z * np.sqrt(rng.gamma(alpha, 1.0 / alpha, each))
    raise DataError(
        f"Functions cannot be drawn from the prior of {type(kernel).__name__}, because its spectral"
        f" density is not known here. They can be drawn for {_KNOWN}. For draws at given inputs use"
        " predict_f_samples."
    )


# ---
# Whitened values of prior draws at conditioning points.


# A Gaussian basis gives f(x) the variance k(x, x) - |minus(x)|^2 + |plus(x)|^2. For eta ~ N(0, I),
# a function of a prior draw g and fresh noise with cov(g(x), eta) = minus(x), g(x) - minus(x)^T eta
# has the covariance of the first two terms (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309).
# This eta is
#
# | the basis conditions on | eta |
# |---|---|
# | values at inducing points, K_b = L L^T | L^-1 g(beta) |
# | sites of precision W, I + W^1/2 K W^1/2 = L_B L_B^T | L_B^-1 (W^1/2 g(X) + noise) |


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
