"""The dual basis in weight space."""

# With p features phi(x) = R^T x, prior covariance R R^T of the weights, A = X R [N, p] and K = A
# A^T,
#
#   V = A C^-1 A^T,   C = I + A^T Lambda A        (V8)
#
# while C [p, p] is positive definite. A weight with a non-Gaussian prior is one more row of A, its
# row of R (V30).

from __future__ import annotations

__all__ = ["WeightSpace", "count_weights"]

import tensorflow as tf
from gpflow.inducing_variables import SharedIndependentInducingVariables
from gpflow.kernels import Constant, Kernel

from ...covariances.latents import gram, gram_to_data, positive_variances
from ...errors import NumericalError
from ...inducing.linear_kernel import LinearWeights
from ...inducing.weights import Weights, weight_parts
from ...linalg.cholesky import cholesky
from ...linalg.coupled_roots import coupled_solve_of_roots, squared_gram_product
from ...linalg.newton_systems import stationary_solve
from ...linalg.triangular import solve
from ..base import Features
from .geometry import DualState, Geometry, Pair, Triple


class WeightSpace(Geometry):
    """Computes with A [1, N, p]: N p^2 + p^3 / 3 per latent for a state, N p memory.

    `state_at` serves the observations X [N, D]; `for_predictions` extends it to other inputs.

    :param weight_sites: number of first weights whose prior is a site.
    """

    form = "weight"
    forms_square_matrices = False
    weight_sites: int = 0
    """The number of first weights whose prior is a site."""

    def __init__(self, points: SharedIndependentInducingVariables, weight_sites: int = 0) -> None:
        super().__init__(points)
        self.weight_sites = weight_sites

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """A [1, N, p]; N p^2. Rows of weights with sites follow, and count in N."""
        root = _prior_root(kernel, self.X)
        A = _positive_rows(tf.linalg.matrix_transpose(_features(kernel, self.X, root)))
        # (V30)
        return tf.concat([A, root[:, : self.weight_sites]], axis=1) if self.weight_sites else A

    def product(self, prior: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """A (A^T x) [N, L]; 2 N p per latent."""
        return tf.matmul(prior[0], tf.matmul(prior[0], vectors, transpose_a=True))

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(prior), axis=-1)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
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
        return state._replace(scale=_prior_root(kernel, self.X))

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(V25); p^2 N* per latent."""
        phi = _features(kernel, X, state.scale)
        mean = -tf.matmul(phi[0], state.coefficients, transpose_a=True)  # (V25)
        return Features(mean, (phi,), (solve(state.chol, phi),))

    def matrices(self, prior: tf.Tensor, lam: tf.Tensor) -> dict[str, tf.Tensor]:
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
