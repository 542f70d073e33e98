"""Mean points orthogonal to the inducing points."""

from __future__ import annotations

__all__ = ["OrthogonalBasis", "OrthogonalState"]

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram, gram_diagonal, gram_to_data
from ..covariances.products import gram_product
from ..covariances.residual import residual_diagonal, residual_gram
from ..inducing.variables import check_separate
from ..linalg.whitening import whiten
from .base import Features
from .orthogonal_mean import OrthogonalMeanBasis, OrthogonalState
from .parts.inducing_gaussian import whiten_columns
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator
from .parts.optimum import OptimalParameters, Regression, orthogonal_optimum


class OrthogonalBasis(OrthogonalMeanBasis):
    """q(f) with mean points gamma orthogonal to beta (Salimbeni et al. 2018).

    Other arguments as `CoupledBasis`.

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable.
    :param mean_scaling: coordinates of `a_gamma`: "none", "diagonal" or "whitened", where a
        gradient step is a natural-gradient step, for M_gamma^3 / 3 per refresh.
    :param mean_subsample: rows m in the estimate of the mean's norm, for thousands of mean points.

    E_q f(beta) = m for any `a_gamma`. A step on N inputs costs N (M_gamma + M_beta^2) + M_beta^3 +
    m M_gamma, and M_gamma^2 more with whitened coefficients. Example::

        beta = gd.inducing.select(X, 50, kernel)
        gamma = gd.inducing.select(X, 500, kernel, given=beta)
        basis = OrthogonalBasis(gamma, beta)
        model = BasisGP(kernel, gpflow.likelihoods.Bernoulli(), basis)
    """

    # (D13), (D14)
    kernel_mean: KernelMean

    def __init__(
        self,
        gamma: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__(beta, num_latent_gps, whiten, q_mu, q_sqrt)
        self.kernel_mean = KernelMean(gamma, "gamma", num_latent_gps, mean_scaling, mean_subsample)
        check_separate(self.gamma, self.beta)

    @property
    def mean_sum(self) -> KernelMean:
        return self.kernel_mean

    @property
    def solves_mean(self) -> bool:
        return True

    def mean_operator(
        self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        projection = whiten(state.chol, None, cross_gram(kernel, self.beta, self.gamma))
        cross = gram_to_data(kernel, self.gamma, X)
        return MeanOperator(gram(kernel, self.gamma), cross, projection, features.minus[0])

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        """Recompute the frozen scaling of `a_gamma` at the current residual kernel C; same q(f).

        Where C is near zero Adam's steps have no effect on q(f), until points or kernel move and
        the bound falls by thousands of nats. A floor prevents this.

        :param floor: scale by C + floor * K_gamma instead of C, plus floor times the diagonal of
            K_gamma where gamma moves.
        """
        gamma = self.gamma
        moves = bool(gamma.trainable_variables)

        def matrix() -> tf.Tensor:
            C = residual_gram(kernel, self.beta, gamma)
            if not floor:
                return C
            C += floor * gram(kernel, gamma)
            if not moves:
                return C
            return tf.linalg.set_diag(
                C, tf.linalg.diag_part(C) + floor * gram_diagonal(kernel, gamma)
            )

        def diagonal() -> tf.Tensor:
            return residual_diagonal(kernel, self.beta, gamma) + floor * gram_diagonal(
                kernel, gamma
            )

        self.kernel_mean.refresh(matrix, diagonal, lambda: gram_diagonal(kernel, gamma))

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        return (self.beta, self.gamma)

    def moved_to(self, *points: InducingVariables) -> OrthogonalBasis:
        beta, gamma = points
        L, mean = self.num_latent_gps, self.kernel_mean
        scaling, subsample = mean.scaling.kind, mean.subsample
        return OrthogonalBasis(
            gamma, beta, L, whiten=self.whiten, mean_scaling=scaling, mean_subsample=subsample
        )

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(f) for Gaussian noise; N (M_gamma^2 + M_beta^2) + M_gamma^3 + M_beta^3."""
        return orthogonal_optimum(kernel, self.beta, self.kernel_mean, data)  # (D26), (D30), (D31)

    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        rows = self.draw_rows() if rows is None else rows
        if rows is None:  # a^T K_gb w = t^T t, (D21)
            return self.kernel_mean.norm(kernel, state.a, None) - tf.reduce_sum(tf.square(state.t))
        products = self.kernel_mean.products(kernel, state.a, rows)
        w = whiten_columns(state.chol, state.tangent, state.t, adjoint=True)
        products -= gram_product(kernel, self.beta, self.gamma, w, rows=rows, whole=True)
        return self.kernel_mean.estimate(state.a, products, rows)  # (D25)
