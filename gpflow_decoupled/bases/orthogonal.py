"""Mean points orthogonal to the inducing points."""

from __future__ import annotations

__all__ = [
    "HybridBasis", "MeanOnDataBasis", "OrthogonalBasis", "OrthogonalMeanBasis", "OrthogonalState",
    "orthogonal_basis",
]  # fmt: skip

import abc
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import (
    MULTIOUTPUT_INDUCING,
    cross_gram,
    gram,
    gram_diagonal,
    gram_to_data,
    gram_to_factor,
    residual_diagonal,
    residual_gram,
)
from ..covariances.products import gram_product
from ..errors import DataError, ModelError, check_option
from ..inducing.variables import check_separate, count_points, input_dims
from ..linalg.triangular import solve, transposed_product
from ..linalg.whitening import apply_per_latent, kl_from_whitened, whiten, whitener
from ..summaries import short_repr
from .base import Features, GaussianPart
from .coupled import CoupledBasis
from .inducing import OneGaussianBasis, norm_of, whiten_columns, whitened
from .kernel_mean import SCALINGS, KernelMean, MeanOperator
from .optimum import (
    DataMean,
    OptimalParameters,
    Regression,
    fit_mean_points,
    no_mean_points,
    project,
    with_gaussians,
)

# ---
# The q(f) of bases with a mean beside that of q(f(beta)).


# Salimbeni et al. 2018 (arXiv:1809.08820), equations (11)-(13). Points gamma add sum_i C(x,
# gamma_i) a_i to the mean, C the residual prior covariance given beta. K_b^-1 K_bg is never formed:
#
#   t = L_b^-1 K_bg a,   w = L_b^-T t
#   m(x) = k_xg a + A_x^T (m~ - t),   covariance as in the coupled basis         (D19), (D20)
#   KL = 1/2 a^T C_g a + 1/2 m~^T m~ + 1/2 [tr S~ - M - log|S~|]                         (D21)
#   C_g = K_g - K_gb K_b^-1 K_bg


class OrthogonalState(NamedTuple):
    """State of a basis whose mean is a sum of kernels beside the mean of q(f(beta))."""

    chol: tf.Tensor
    """chol(K_beta) [G, M_beta, M_beta]"""
    mean: tf.Tensor
    """m~, of `HybridBasis` m~_h, [M_beta, L]."""
    root: tf.Tensor
    """A root of S~ [L, M_beta, M_beta]."""
    a: tf.Tensor
    """Raw coefficients [M_gamma, L]."""
    t: tf.Tensor
    """t = L_b^-1 K_bg a [M_beta, L]"""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None
    """a^T C_g a, of `HybridBasis` a^T K_g a, a scalar; None in a state for predictions."""


class OrthogonalMeanBasis(OneGaussianBasis):
    """Base class of bases with a mean orthogonal to beta.

    Subclasses define the sum of kernels (`mean_sum`) and its norm (`_norm`). Parameters as in
    `MeanOnDataBasis`, beta [M_beta, D].
    """

    state_type = OrthogonalState
    acts_on_rows = ("tangent", "mean", "root", "t")

    @property
    @abc.abstractmethod
    def mean_sum(self) -> KernelMean | DataMean:
        """The sum of kernels in the mean."""

    @abc.abstractmethod
    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        """Return a^T C_g a, a scalar, from a state without it."""

    @property
    def gamma(self) -> InducingVariables:
        """The mean points."""
        return self.mean_sum.points

    @property
    def a_gamma(self) -> Parameter:
        """The Parameter of the coefficients [M_gamma, L]; `mean_coefficients` has the raw ones."""
        return self.mean_sum.coefficients

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> OrthogonalState:
        """Factorise K_beta, with t and the norm; M_beta^3 / 3 + M_beta M_gamma.

        The norm costs M_gamma^2 more, or m M_gamma from m rows.
        """
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.mean_sum.raw()
        t = whiten_columns(chol, tangent, self.mean_sum.values(kernel, a, self.beta))  # (D19)
        state = OrthogonalState(chol, mean, root, a, t, ok, tangent)
        return state._replace(norm=self._norm(kernel, state, rows)) if with_kl else state

    def features(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor) -> Features:
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        of_beta = apply_per_latent(A, state.mean - state.t, adjoint=True)
        mean = self.mean_sum.values(kernel, state.a, X) + tf.cast(of_beta, X.dtype)  # (D19)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: OrthogonalState) -> tf.Tensor:
        return 0.5 * norm_of(state) + kl_from_whitened(state.mean, state.root)  # (D21)

    def mean_coefficients(self, state: OrthogonalState) -> tf.Tensor:
        return state.a

    def weights_of_rows(self, state: OrthogonalState) -> tf.Tensor:
        return state.mean - state.t


# ---


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
        return type(self)(
            gamma, beta, L, whiten=self.whiten, mean_scaling=scaling, mean_subsample=subsample
        )

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(f) for Gaussian noise; N (M_gamma^2 + M_beta^2) + M_gamma^3 + M_beta^3."""
        # (D26), (D30), (D31)
        chol, A = project(kernel, self.beta, data.X)
        fit = no_mean_points(data)
        if self.kernel_mean.size > 0:
            K, cross = gram(kernel, self.gamma), gram_to_data(kernel, self.gamma, data.X)
            U = solve(chol, cross_gram(kernel, self.beta, self.gamma))
            fit = fit_mean_points(MeanOperator(K, cross, U, A), A, data)
        return with_gaussians(kernel, data, [A], fit)

    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        rows = self.draw_rows() if rows is None else rows
        if rows is None:  # a^T K_gb w = t^T t, (D21)
            return self.kernel_mean.norm(kernel, state.a, None) - tf.reduce_sum(tf.square(state.t))
        products = self.kernel_mean.products(kernel, state.a, rows)
        w = whiten_columns(state.chol, state.tangent, state.t, adjoint=True)
        products -= gram_product(kernel, self.beta, self.gamma, w, rows=rows, whole=True)
        return self.kernel_mean.estimate(state.a, products, rows)  # (D25)


# ---
# The hybrid basis: mean points not orthogonal to beta.


# Cheng & Boots 2017 (arXiv:1711.10127), appendix. With t = L_b^-1 K_bg a and the coupled part of
# the mean a_b = K_b^-1 m_h, (D10), (D11):
#
#   m(x) = k_xg a + A_x^T m~_h,   covariance as in the coupled basis
#   KL = 1/2 [a^T K_g a + 2 t^T m~_h + m~_h^T m~_h] + 1/2 [tr S~ - M - log|S~|]
#
# Equation 14 of Cheng & Boots lacks the factor 1/2 of the log determinant. By (D15),
# `OrthogonalBasis` has the same q(f).


class HybridBasis(OrthogonalBasis):
    """q(f) with mean points gamma beside the inducing points beta (Cheng & Boots 2017).

    An `OrthogonalBasis` in worse coordinates: E_q f(beta) = m_h + K_bg a_gamma for `q_mu` = m_h, so
    that steps of the coefficients move q(f(beta)) too. Parameters and errors as there.

    Example::

        basis = HybridBasis(X[:500], X[500:550])
        model = BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), basis)
    """

    solves_mean = steps_mean = holds_sites = ties_sites = property(
        lambda self: False, doc="False: a step of the coefficients moves q(f(beta)) too."
    )

    def features(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor) -> Features:
        return super().features(state._replace(t=tf.zeros_like(state.t)), kernel, X)  # (D10)

    def prior_kl(self, state: OrthogonalState) -> tf.Tensor:
        return super().prior_kl(state) + tf.reduce_sum(state.t * state.mean)  # (D11)

    def mean_operator(
        self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        return MeanOperator(gram(kernel, self.gamma), gram_to_data(kernel, self.gamma, X))

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        self.kernel_mean.refresh(
            lambda: gram(kernel, self.gamma), lambda: gram_diagonal(kernel, self.gamma)
        )

    def gaussians(self, state: OrthogonalState) -> tuple[GaussianPart, ...]:
        """Whitened q(f(beta)), mean m_h + K_bg a (appendix C.2 of the paper)."""
        return (GaussianPart(state.mean + state.t, state.root),)

    def with_gaussians(
        self, state: OrthogonalState, new: tuple[GaussianPart, ...]
    ) -> OrthogonalState:
        return state._replace(mean=new[0].mean - tf.stop_gradient(state.t), root=new[0].root)

    def assign_gaussians(self, state: OrthogonalState, new: tuple[GaussianPart, ...]) -> None:
        super().assign_gaussians(state, (GaussianPart(new[0].mean - state.t, new[0].root),))

    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        rows = self.draw_rows() if rows is None else rows
        return self.kernel_mean.norm(kernel, state.a, rows)  # (D25) with C = K_g


# ---
# A mean on all training inputs.


class MeanOnDataBasis(OrthogonalMeanBasis):
    """q(f) with a mean on all training inputs, and a covariance on beta.

    With Gaussian noise the best mean is the exact posterior mean; `optimizers.ConjugateGradients`
    finds it. A `CoupledBasis`, with its arguments, until `fit` or a solver sets the data.

    :param beta: inducing points [M_beta, D], or a GPflow inducing variable of points.

    Training refuses kernels with a `White` part. The bound on N rows costs N (N + M_beta^2) +
    M_beta^3. Example::

        basis = MeanOnDataBasis(gd.inducing.select(X, 50, kernel))
        model = BasisGP(kernel, gpflow.likelihoods.Gaussian(), basis)
        gpflow_decoupled.fit(model, (X, Y))
    """

    # (D13), (D14) with gamma = X
    data_mean: DataMean

    def __init__(
        self,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__(beta, num_latent_gps, whiten, q_mu, q_sqrt)
        dims = input_dims(self.beta)
        if dims is None:
            raise DataError(
                f"A mean on all data needs a beta of inducing points, and {type(beta).__name__} is"
                " none: pass points [M, D] as beta, or choose gamma by"
                " inducing.select(X, M, kernel)."
            )
        shared = isinstance(self.beta, MULTIOUTPUT_INDUCING)
        self.data_mean = DataMean(dims, num_latent_gps, shared)

    @property
    def mean_sum(self) -> DataMean:
        return self.data_mean

    def without_mean_points(self) -> CoupledBasis:
        """The basis of the same q(u), with shared Parameters, without the mean."""
        return CoupledBasis(
            self.beta, self.num_latent_gps, whiten=self.whiten, q_mu=self.q_mu, q_sqrt=self.q_sqrt
        )

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        raise ModelError(
            "A mean on all data keeps no record of earlier rows, and cannot take in a stream: call"
            " fit(model, (X, Y)) with old and new rows together, which starts from the present"
            " kernel, or take an NNGP, which has an update."
        )

    @property
    def sizes(self) -> dict[str, int | str]:
        rows = {"N": self.data_mean.size} if self.data_mean.size else {}
        return {"beta": count_points(self.beta), "gamma": '"data"', **rows}

    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        products = self.data_mean.values(kernel, state.a, None)
        return tf.reduce_sum(state.a * products) - tf.reduce_sum(tf.square(state.t))  # (D21)


def orthogonal_basis(
    gamma: InducingVariables | TensorType | str,
    beta: InducingVariables | TensorType,
    num_latent_gps: int,
    *,
    mean_scaling: str = "whitened",
    mean_subsample: int | None = None,
    **options: Any,
) -> OrthogonalBasis | MeanOnDataBasis:
    """The basis of `ODVGP`: a `MeanOnDataBasis` for gamma = "data", else an `OrthogonalBasis`.

    :param gamma: mean points [M_gamma, D], a GPflow inducing variable, or "data".
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.
    """
    if not isinstance(gamma, str):
        return OrthogonalBasis(
            gamma,
            beta,
            num_latent_gps,
            mean_scaling=mean_scaling,
            mean_subsample=mean_subsample,
            **options,
        )
    check_option("gamma", gamma, ("data",))
    check_option("mean_scaling", mean_scaling, SCALINGS)
    if mean_subsample is not None:
        raise DataError(
            f'mean_subsample={short_repr(mean_subsample)}: gamma="data" computes the norm of the'
            " mean in full; leave the option out."
        )
    return MeanOnDataBasis(beta, num_latent_gps, **options)
