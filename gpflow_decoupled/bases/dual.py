"""The dual basis: q(f) by multipliers."""

from __future__ import annotations

__all__ = ["DualBasis", "DualState", "FunctionSpace", "WeightSpace", "count_weights"]

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.inducing_variables import SharedIndependentInducingVariables
from gpflow.kernels import Constant, Kernel

from ..covariances.latents import gram, gram_to_data, positive_gram, positive_variances
from ..errors import DataError, NumericalError, check_option
from ..inducing.weights import LinearWeights, Weights, weight_parts
from ..linalg.cholesky import cholesky, diagnose
from ..linalg.newton_systems import (
    coupled_solve,
    coupled_solve_of_roots,
    squared_gram_product,
    stationary_solve,
)
from ..linalg.site_posterior import SitePosterior, site_posterior
from ..linalg.triangular import lower_root_gram, solve
from ..linalg.whitening import apply_per_latent
from .base import Basis, Features
from .site import OnObservations, observation_points, per_observation

# | symbol | code | shape |
# |---|---|---|
# | representation of the prior covariance K at the observations | `prior` | `prior(kernel)` |
# | u, mean of q(f) at the observations, mean function subtracted | `DualState.mean` | [N, L] |
# | v, the variances there | `DualState.variance` | [N, L] |
# | V = (K^-1 + diag lambda)^-1, the covariance there | `covariance` | [L, N, N] |
#
# N observations, L latents; G is L if each latent has its kernel, 1 if all share one.


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


# ---
# The dual basis in function space.


#   V = K - K Lambda^1/2 B^-1 Lambda^1/2 K,   B = I + Lambda^1/2 K Lambda^1/2        (V9)
#
# for positive lambda; `linalg.site_posterior` adds negative ones. K may be singular.


_JITTERS = (0.0, 4.5, 45.0, 450.0, 4.5e3, 4.5e4, 4.5e5)
"""Jitters tried, in machine epsilons of K's mean diagonal: up to 1e-10 in float64."""
_TINY = 1e-9
"""Least lambda v at which V from B^-1 still has six digits."""
_NAME, _FIXES = (
    "The kernel matrix K",
    "a positive semi-definite kernel, gpflow.kernels.White(1e-6) added to it",
)


class FunctionSpace:
    """Computes with K [G, N, N]: 2/3 N^3 per latent for a state, N^2 memory.

    `WeightSpace` has the same methods. Those below `prior` take what it returns, so that an
    optimizer computes it once.
    """

    form = "function"
    forms_square_matrices = True
    """A Newton step forms N x N matrices, which limits the number of observations."""
    in_graphs = True
    """The methods can be compiled."""

    def __init__(self, points: SharedIndependentInducingVariables) -> None:
        self.points = points

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """K [G, N, N] with variances above 0."""
        return positive_gram(kernel, self.points)

    def product(self, prior: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """K x [N, L]; N^2 per latent."""
        return apply_per_latent(prior, vectors)

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        """The diagonal of K [G, N]."""
        return tf.linalg.diag_part(prior)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        """sum_j K_nj^2 of each row n [G, N]."""
        return tf.reduce_sum(tf.square(prior), axis=-1)

    def root(self, prior: tf.Tensor) -> tf.Tensor:
        """Some A [G, N, p] with K = A A^T."""
        return self.triangular_root(prior)

    def triangular_root(self, prior: tf.Tensor) -> tf.Tensor:
        """Cholesky factor of K [G, N, N], with the least jitter that gives one; N^3 / 3."""
        diagonal = tf.linalg.diag_part(prior)
        unit = np.finfo(diagonal.dtype.as_numpy_dtype).eps * tf.reduce_mean(diagonal)
        for jitter in _JITTERS:
            chol, ok = cholesky(tf.linalg.set_diag(prior, diagonal + jitter * unit))
            if bool(ok):
                return chol
        raise self.diagnosis(prior)

    def coefficients_of(self, root: tf.Tensor, white: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """alpha [N, L] with mean A t, for a root A and t = white [p, L]; empty if K is singular."""
        return (-tf.transpose(solve(root, tf.transpose(white)[..., None], adjoint=True)[..., 0]),)

    def diagnosis(self, prior: tf.Tensor) -> NumericalError:
        """The error for a K without V; None if K cannot be the cause."""
        return diagnose(_NAME, prior.numpy(), _FIXES)

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state at multipliers alpha, lam [N, L], (V7), (V9); 2/3 N^3 per latent."""
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        p = site_posterior(prior, tf.zeros_like(lam), lam)  # (V9)
        mean = -self.product(prior, alpha)  # (V7)
        return _state(p, alpha, mean, lam)

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state at sites exp(b u - lam u^2 / 2), b, lam [N, L], (V22); 2/3 N^3 per latent."""
        p = site_posterior(prior, b, lam)
        return _state(p, -p.alpha, p.mean, lam)  # (V22)

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """The state with another alpha [N, L], without factorisation (V7); N^2 per latent."""
        # (V7)
        return state._replace(coefficients=alpha, alpha=alpha, mean=-self.product(prior, alpha))

    def for_predictions(self, state: DualState, kernel: Kernel) -> DualState:
        """The state without L_B^-1, which only Newton steps need."""
        return state._replace(inverse=None)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """Moments of q(f) at X [N*, D], without the mean function, (V25); N^2 N* per latent."""
        K_Xx = gram_to_data(kernel, self.points, X)
        mean = -apply_per_latent(K_Xx, state.coefficients, adjoint=True)  # (V25)
        minus = solve(state.chol, state.scale[:, :, None] * K_Xx)
        return Features(mean, (minus,), (tf.matmul(state.negative, K_Xx),))

    def matrices(self, prior: tf.Tensor, lam: tf.Tensor) -> dict[str, tf.Tensor]:
        """Matrices that `state_at` factorises for lam [N, L], by name, for error messages."""
        scale = tf.sqrt(tf.maximum(tf.transpose(lam)[:, :, None], 0.0))
        B = scale * prior * tf.linalg.matrix_transpose(scale)
        return {"I + Lambda^1/2 K Lambda^1/2": tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)}

    def covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """V at the observations [L, N, N], (V9) for lambda of any sign; 3/2 N^3 per latent."""
        T = solve(state.chol, state.scale[:, :, None] * prior)
        excess = tf.matmul(state.negative, prior)
        V = prior - tf.matmul(T, T, transpose_a=True)  # (V9)
        return V + tf.matmul(excess, excess, transpose_a=True)

    def squared_covariance_product(
        self, prior: tf.Tensor, state: DualState, vectors: tf.Tensor
    ) -> tf.Tensor:
        """(V * V) y, with the elementwise square of V, y [L, N]; 3/2 N^3 per latent."""
        return tf.linalg.matvec(tf.square(self.covariance(prior, state)), vectors)

    def solve_newton(
        self,
        prior: tf.Tensor,
        state: DualState,
        diagonals: Triple,
        right: Pair,
        free: Pair,
        ridge: tf.Tensor | float,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Solve the Newton system of a subproblem, (V18), for (x, y, ok); 2 N^3 per latent.

            [ K + diag a   diag c             ] [x]   [r]
            [ diag c       1/2 V * V + diag b ] [y] = [s]

        :param diagonals: (a, b, c), [L, N] each.
        :param right: (r, s), [L, N] each.
        :param free: masks [L, N] of the free rows of x and y; the others are zero.
        :param ridge: of the scaled blocks, in machine epsilons [].
        """
        a, b, c = diagonals
        squares = 0.5 * tf.square(self._covariance(prior, state))
        return coupled_solve(prior, a, squares, b, c, *right, free, ridge)  # (V18)

    def solve_stationary(
        self, prior: tf.Tensor, state: DualState, curvatures: Triple, right: Pair
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Solve (I + H G)(x; y) = (r; s), the Newton system of the optimality conditions, (V27).

        Curvatures (a, b, c) [L, N] are blocks (a, c; c, b) of H; right is (r, s), [L, N] each.
        Returns x, y [L, N], and whether the system was positive definite. By conjugate gradients
        on V alone: 2/3 N^3 per latent, and 2 N^2 per iteration.
        """
        V = self._covariance(prior, state)
        return stationary_solve(V, tf.transpose(state.lam), curvatures, *right)  # (V27)

    def _covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """V [L, N, N] to six digits, enough for a Newton step."""
        # Lambda^1/2 V Lambda^1/2 = I - B^-1 costs a quarter of `covariance`, but loses digits for
        # tiny lambda v.

        def from_inverse() -> tf.Tensor:
            scale = 1.0 / state.scale
            V = -scale[:, :, None] * lower_root_gram(state.inverse) * scale[:, None, :]
            return tf.linalg.set_diag(V, tf.transpose(state.variance))

        accurate = tf.reduce_all(state.lam * state.variance > _TINY)
        return tf.cond(accurate, from_inverse, lambda: self.covariance(prior, state))


def _state(p: SitePosterior, alpha: tf.Tensor, mean: tf.Tensor, lam: tf.Tensor) -> DualState:
    shape = (p.chol, p.scale, p.negative)
    return DualState(*shape, alpha, p.ok, mean, p.variance, p.log_det, alpha, lam, p.inverse)


# ---
# The dual basis in weight space.


# With p features phi(x) = R^T x, prior covariance R R^T of the weights, A = X R [N, p] and K = A
# A^T,
#
#   V = A C^-1 A^T,   C = I + A^T Lambda A        (V8)
#
# while C [p, p] is positive definite. A weight with a non-Gaussian prior is one more row of A, its
# row of R (V30).


class WeightSpace:
    """Computes with A [1, N, p]: N p^2 + p^3 / 3 per latent for a state, N p memory.

    The methods are `FunctionSpace`'s.

    `state_at` serves the observations X [N, D]; `for_predictions` extends it to other inputs.

    :param weight_sites: number of first weights whose prior is a site.
    """

    form = "weight"
    forms_square_matrices = False
    in_graphs = True

    def __init__(self, points: SharedIndependentInducingVariables, weight_sites: int = 0) -> None:
        self.points, self.weight_sites = points, weight_sites

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """A [1, N, p]; N p^2. Rows of weights with sites follow, and count in N."""
        root, X = _prior_root(kernel, _inputs(self.points)), _inputs(self.points)
        A = _positive_rows(tf.linalg.matrix_transpose(_features(kernel, X, root)))
        # (V30)
        return tf.concat([A, root[:, : self.weight_sites]], axis=1) if self.weight_sites else A

    def product(self, prior: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """A (A^T x) [N, L]; 2 N p per latent."""
        return tf.matmul(prior[0], tf.matmul(prior[0], vectors, transpose_a=True))

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        """The diagonal of A A^T [1, N]."""
        return tf.reduce_sum(tf.square(prior), axis=-1)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        """sum_j K_nj^2 of each row n [1, N], without K."""
        return tf.reduce_sum(
            prior * tf.matmul(prior, tf.matmul(prior, prior, transpose_a=True)), axis=-1
        )

    def root(self, prior: tf.Tensor) -> tf.Tensor:
        """A itself [1, N, p]."""
        return prior

    def triangular_root(self, prior: tf.Tensor) -> tf.Tensor:
        """Refuse: K has no factor if N exceeds p."""
        raise NumericalError(
            "An unwhitened covariance needs a Cholesky factor of K, and in weight space K has none:"
            ' use whiten=True, or a model with form="function".',
            matrix="K",
        )

    def coefficients_of(self, root: tf.Tensor, white: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """None: K has no inverse if N exceeds p."""
        return ()

    def diagnosis(self, prior: tf.Tensor) -> None:
        """None: K = A A^T is positive semi-definite by construction."""
        return None

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V7), (V8); N p^2 + p^3 / 3 per latent."""
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        A = prior[0]
        C = tf.matmul(A, tf.transpose(lam)[:, :, None] * A, transpose_a=True)
        chol, ok = cholesky(tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0))  # (V7)
        pulled = tf.matmul(A, alpha, transpose_a=True)
        T = solve(
            chol,
            tf.broadcast_to(tf.transpose(A), [tf.shape(lam)[1], *tf.unstack(tf.shape(A)[::-1])]),
        )
        variance = tf.transpose(tf.reduce_sum(tf.square(T), axis=-2))  # (V8)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        none = tf.zeros_like(chol[:, :0])
        return DualState(
            chol, none, none, pulled, ok, -tf.matmul(A, pulled), variance, log_det, alpha, lam
        )

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V22) with the mean A C^-1 A^T b; N p^2 + p^3 / 3 per latent."""
        state = self.state_at(prior, tf.zeros_like(b), lam)
        pull = solve(
            state.chol, tf.linalg.matvec(prior, tf.transpose(b), transpose_a=True)[..., None]
        )
        mean = tf.transpose(tf.linalg.matvec(prior, solve(state.chol, pull, adjoint=True)[..., 0]))
        alpha = lam * mean - b  # (V22)
        return state._replace(
            alpha=alpha, mean=mean, coefficients=tf.matmul(prior[0], alpha, transpose_a=True)
        )

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """(V7); 2 N p per latent."""
        pulled = tf.matmul(prior[0], alpha, transpose_a=True)
        # (V7)
        return state._replace(coefficients=pulled, alpha=alpha, mean=-tf.matmul(prior[0], pulled))

    def for_predictions(self, state: DualState, kernel: Kernel) -> DualState:
        """The state with R, which `features` needs."""
        return state._replace(scale=_prior_root(kernel, _inputs(self.points)))

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(V25); p^2 N* per latent."""
        phi = _features(kernel, X, state.scale)
        mean = -tf.matmul(phi[0], state.coefficients, transpose_a=True)  # (V25)
        return Features(mean, (phi,), (solve(state.chol, phi),))

    def matrices(self, prior: tf.Tensor, lam: tf.Tensor) -> dict[str, tf.Tensor]:
        """C [L, p, p] for lam [N, L], by name, for error messages."""
        C = tf.matmul(prior, tf.transpose(lam)[:, :, None] * prior, transpose_a=True)
        return {"C = I + A^T Lambda A": tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0)}

    def covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """(V8); N^2 p per latent."""
        T = self._root(prior, state)
        return tf.matmul(T, T, transpose_a=True)  # (V8)

    def squared_covariance_product(
        self, prior: tf.Tensor, state: DualState, vectors: tf.Tensor
    ) -> tf.Tensor:
        """Without V; 3 N p^2 per latent."""
        return squared_gram_product(self._root(prior, state), vectors)

    def solve_newton(
        self,
        prior: tf.Tensor,
        state: DualState,
        diagonals: Triple,
        right: Pair,
        free: Pair,
        ridge: tf.Tensor | float,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """By conjugate gradients; 3 N p^2 per latent in about ten iterations each, N p memory."""
        a, b, c = diagonals
        # (V18)
        return coupled_solve_of_roots(prior, a, self._root(prior, state), b, c, *right, free, ridge)

    def solve_stationary(
        self, prior: tf.Tensor, state: DualState, curvatures: Triple, right: Pair
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """By conjugate gradients; 2 N p^2 per latent and iteration."""
        T = self._root(prior, state)
        return stationary_solve(T, tf.transpose(state.lam), curvatures, *right, root=True)  # (V27)

    def _root(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        return solve(state.chol, tf.linalg.matrix_transpose(prior))  # (V8)


def count_weights(kernel: Kernel, X: tf.Tensor) -> int:
    """The number of weights of a linear kernel on X [N, D]; `NotImplementedError` for others."""
    counts = []
    for part in weight_parts(kernel):
        if isinstance(part, Constant):
            counts.append(1)
        else:
            counts.append(
                part.num_weights if isinstance(part, LinearWeights) else part.slice(X)[0].shape[-1]
            )
    return sum(counts)


def _inputs(points: SharedIndependentInducingVariables) -> tf.Tensor:
    return tf.convert_to_tensor(points.inducing_variable.Z)


def _prior_root(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    return cholesky(gram(kernel, Weights(count_weights(kernel, X)))).chol


def _positive_rows(A: tf.Tensor) -> tf.Tensor:
    """A [1, N, p] with `positive_variances`: vanishing rows are spread over all weights."""
    variances = tf.reduce_sum(tf.square(A), axis=-1, keepdims=True)
    least = tf.stop_gradient(
        tf.linalg.matrix_transpose(positive_variances(tf.linalg.matrix_transpose(variances)))
    )
    return tf.where(least > variances, tf.sqrt(least / tf.cast(tf.shape(A)[-1], A.dtype)), A)


def _features(kernel: Kernel, X: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    return solve(root, gram_to_data(kernel, Weights(count_weights(kernel, X)), X))


# ---


# Khan 2014, Theorem 4.1. With u = f - m_0 at the observations, Lambda = diag(lambda), and v the
# diagonal of V, (V7), (V10):
#
#   E u = -K alpha,   V = (K^-1 + Lambda)^-1
#   KL = 1/2 [log|I + K Lambda| - lambda^T v + alpha^T K alpha]
#
# lambda may have any sign while V exists. alpha is the negative of `SiteBasis`'s.


class DualBasis(OnObservations, Basis):
    """q(f) with mean -K alpha, covariance (K^-1 + diag lambda)^-1 at the data (Khan 2014).

    Cost per latent: 2/3 N^3 and N^2 memory, or with "weight" N p^2 + p^3 / 3 and N p memory.

    :param points: the inputs X [N, D], which stay fixed.
    :param num_latent_gps: L, independent under q.
    :param form: "function" computes with K [N, N], for any kernel; "weight" with p x p and N x p
        matrices, for linear kernels of p weights.
    :param weight_sites: first weights whose prior is a site, for "weight"; their multipliers follow
        the observations'.
    :param alpha: [N, L]; by default zeros.
    :param lam: lambda [N, L]; by default zeros. If both are zero, q is the prior.

    Example::

        basis = DualBasis(X, alpha=alpha, lam=lam)
        state = basis.factor(kernel)
        mean, variance = basis.mean_and_cov(state, kernel, Xnew)
    """

    state_type = DualState

    def __init__(
        self,
        points: npt.ArrayLike,
        num_latent_gps: int = 1,
        form: str = "function",
        *,
        weight_sites: int = 0,
        alpha: npt.ArrayLike | None = None,
        lam: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__()
        check_option("form", form, ("function", "weight"))
        self.points = observation_points(points)
        self.num_latent_gps = num_latent_gps
        self.geometry: FunctionSpace | WeightSpace
        if form == "weight":
            self.geometry = WeightSpace(self.points, weight_sites)
        elif weight_sites:
            raise DataError(
                'Weights have sites of their own in the form "weight" alone; pass form="weight".'
            )
        else:
            self.geometry = FunctionSpace(self.points)
        rows = self.num_data + weight_sites
        neutral = "at alpha = lam = 0 q is the prior"
        self.alpha = per_observation("alpha", alpha, rows, num_latent_gps, neutral)
        self.lam = per_observation("lam", lam, rows, num_latent_gps, neutral)

    @property
    def form(self) -> str:
        """The form, "function" or "weight"."""
        return self.geometry.form

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """I + Lambda^1/2 K Lambda^1/2 of the positive lambda, or C = I + A^T Lambda A."""
        return self.geometry.matrices(self.geometry.prior(kernel), tf.convert_to_tensor(self.lam))

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> DualState:
        """The state at the multipliers; `rows` and `with_kl` are ignored."""
        state = self.geometry.state_at(self.geometry.prior(kernel), self.alpha, self.lam)
        return self.geometry.for_predictions(state, kernel)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        return self.geometry.features(state, kernel, X)

    def prior_kl(self, state: DualState) -> tf.Tensor:
        quadratic = tf.reduce_sum(state.alpha * state.mean) + tf.reduce_sum(
            state.lam * state.variance
        )
        return 0.5 * (state.log_det - quadratic)  # (V10)
