"""The contract of a `DualBasis`'s linear algebra."""

# | symbol | code | shape |
# |---|---|---|
# | representation of the prior covariance K at the observations | `prior` | `Geometry.prior` |
# | u, mean of q(f) at the observations, mean function subtracted | `DualState.mean` | [N, L] |
# | v, the variances there | `DualState.variance` | [N, L] |
# | V = (K^-1 + diag lambda)^-1, the covariance there | `Geometry.covariance` | [L, N, N] |
#
# N observations, L latents; G is L if each latent has its kernel, 1 if all share one.

from __future__ import annotations

__all__ = ["DualState", "Geometry"]

import abc
from typing import NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import SharedIndependentInducingVariables
from gpflow.kernels import Kernel

from ...errors import NumericalError
from ..base import Features

Triple = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
Pair = tuple[tf.Tensor, tf.Tensor]


class DualState(NamedTuple):
    """q(f) at given multipliers.

    For predictions up to `ok` only.
    """

    chol: tf.Tensor
    """Function space: L_B [L, N, N], B = I + Lambda^1/2 K Lambda^1/2, positive lambda. Weight
    space: L_C [L, p, p].
    """
    scale: tf.Tensor
    """Function space: Lambda^1/2 of the positive lambda [L, N]. Weight space: R [1, p, p], prior
    covariance R R^T.
    """
    negative: tf.Tensor
    """Contribution of negative lambda to standard deviations, [L, m, N]; m = 0 in weight space."""
    coefficients: tf.Tensor
    """Function space: alpha [N, L]. Weight space: A^T alpha [p, L]."""
    ok: tf.Tensor
    """[], bool: V exists."""
    mean: tf.Tensor = None
    """u at the observations [N, L]."""
    variance: tf.Tensor = None
    """v at the observations [N, L]."""
    log_det: tf.Tensor = None
    """log|I + K Lambda|, summed over latents: []."""
    alpha: tf.Tensor = None
    """[N, L]"""
    lam: tf.Tensor = None
    """[N, L]"""
    inverse: tf.Tensor = None
    """Function space, during optimization: L_B^-1 [L, N, N]."""


class Geometry(abc.ABC):
    """Linear algebra of q(f) = N(m_0 - K alpha, (K^-1 + diag lambda)^-1), for inputs X [N, D]."""

    form: str
    """The form, "function" or "weight"."""
    forms_square_matrices: bool
    """A Newton step forms N x N matrices, which limits the number of observations."""
    in_graphs: bool = True
    """Its methods can be compiled."""

    def __init__(self, points: SharedIndependentInducingVariables) -> None:
        self.points = points

    @property
    def X(self) -> tf.Tensor:
        """The inputs [N, D]."""
        return tf.convert_to_tensor(self.points.inducing_variable.Z)

    # The prior: every method below takes what `prior` returns, so that an optimizer computes it
    # once.

    @abc.abstractmethod
    def prior(self, kernel: Kernel) -> tf.Tensor:
        """K at the observations: K itself [G, N, N], or A [1, N, p] with K = A A^T."""

    @abc.abstractmethod
    def product(self, prior: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """K times a column per latent, [N, L] -> [N, L]."""

    @abc.abstractmethod
    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        """The diagonal of K [G, N]."""

    @abc.abstractmethod
    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        """sum_j K_nj^2 of each row n [G, N]."""

    @abc.abstractmethod
    def root(self, prior: tf.Tensor) -> tf.Tensor:
        """Some A [G, N, p] with K = A A^T."""

    @abc.abstractmethod
    def triangular_root(self, prior: tf.Tensor) -> tf.Tensor:
        """Lower Cholesky factor A [G, N, N] of K."""

    @abc.abstractmethod
    def coefficients_of(self, root: tf.Tensor, white: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """alpha [N, L] with mean A t, for a root A and t = white [p, L]; empty if K has no
        inverse.
        """

    @abc.abstractmethod
    def diagnosis(self, prior: tf.Tensor) -> NumericalError | None:
        """The error for a K without V; None if K cannot be the cause."""

    # q(f) at given multipliers.

    @abc.abstractmethod
    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state at multipliers alpha, lam [N, L]: (V8) or (V9)."""

    @abc.abstractmethod
    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state at sites exp(b u - lam u^2 / 2) on u = f - m_0, b and lam [N, L]: (V22)."""

    @abc.abstractmethod
    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """The state with another alpha [N, L], without factorisation; N^2 or N p per latent."""

    @abc.abstractmethod
    def for_predictions(self, state: DualState, kernel: Kernel) -> DualState:
        """The state as `features` needs it."""

    @abc.abstractmethod
    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """Moments of q(f) at X [N*, D], without the mean function: (V25)."""

    @abc.abstractmethod
    def matrices(self, prior: tf.Tensor, lam: tf.Tensor) -> dict[str, tf.Tensor]:
        """Matrices that `state_at` factorises for lam [N, L], by name, for error messages."""

    # Products with V, for optimizers of the multipliers.

    @abc.abstractmethod
    def covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """V at the observations [L, N, N]."""

    @abc.abstractmethod
    def squared_covariance_product(
        self, prior: tf.Tensor, state: DualState, vectors: tf.Tensor
    ) -> tf.Tensor:
        """(V * V) y, with the elementwise square of V, for y [L, N] -> [L, N]."""

    @abc.abstractmethod
    def solve_newton(
        self,
        prior: tf.Tensor,
        state: DualState,
        diagonals: Triple,
        right: Pair,
        free: Pair,
        ridge: tf.Tensor | float,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Solve the Newton system of a subproblem, (V18), for (x, y, ok).

            [ K + diag a   diag c             ] [x]   [r]
            [ diag c       1/2 V * V + diag b ] [y] = [s]

        :param diagonals: (a, b, c), [L, N] each.
        :param right: (r, s), [L, N] each.
        :param free: masks [L, N] of the free rows of x and y; the others are zero.
        :param ridge: of the scaled blocks, in machine epsilons [].
        """

    @abc.abstractmethod
    def solve_stationary(
        self, prior: tf.Tensor, state: DualState, curvatures: Triple, right: Pair
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Solve (I + H G)(x; y) = (r; s), the Newton system of the optimality conditions, (V27).

        Curvatures (a, b, c) [L, N] are blocks (a, c; c, b) of H; right is (r, s), [L, N] each.
        Returns x, y [L, N], and whether the system was positive definite.
        """
