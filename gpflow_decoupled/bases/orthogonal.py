"""The orthogonally decoupled basis: extra mean points gamma, orthogonal to the inducing points
beta.

Salimbeni, Cheng, Boots & Deisenroth 2018 (arXiv:1809.08820), equations (11)-(13). The mean points
contribute sum_i C(x, gamma_i) a_i, where the residual kernel C is what beta leaves unexplained of
the prior. The order of operations is such that K_b^-1 K_bg is not formed, and kernel matrices of
gamma are only multiplied by a, or by w:

    t = L_b^-1 K_bg a,   w = L_b^-T t m(x) = k_xg a + A_x^T (m~ - t),   covariance as in the coupled
    basis                              (D19), (D20) KL = 1/2 a^T C_g a + 1/2 m~^T m~ + 1/2
    [tr S~ - M - log|S~|],   C_g = K_g - K_gb K_b^-1 K_bg       (D21), (D25)
"""

from __future__ import annotations

__all__ = ["OrthogonalBasis", "OrthogonalState"]

from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram, gram_diagonal, gram_to_data, gram_to_factor
from ..covariances.products import gram_product
from ..covariances.residual import residual_diagonal, residual_gram
from ..errors import ModelError
from ..inducing.variables import as_inducing, count_points
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import Whitener, whiten, whitener
from .base import Features, Gaussian
from .coupled import CoupledBasis
from .inducing_basis import InducingBasis, norm_of
from .parts.data_mean import mean_points
from .parts.inducing_gaussian import assign_whitened, gaussian_parameters, whiten_columns, whitened
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator
from .parts.optimum import OptimalParameters, Regression, orthogonal_optimum


class OrthogonalState(NamedTuple):
    """State of an `OrthogonalBasis`."""

    chol: tf.Tensor
    """chol(K_beta) [G, M_beta, M_beta]"""
    mean: tf.Tensor
    """m~ [M_beta, L]"""
    root: tf.Tensor
    """A root of S~ [L, M_beta, M_beta]."""
    a: tf.Tensor
    """Raw coefficients [M_gamma, L]."""
    t: tf.Tensor
    """t = L_b^-1 K_bg a [M_beta, L]"""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None
    """a^T C_g a, a scalar, where the divergence is wanted."""


class OrthogonalBasis(InducingBasis):
    """q(f) with mean points gamma orthogonal to the inducing points beta; equations (D13), (D14).

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable; or "data", the training
        inputs themselves, which `fit`, `optimizers.ConjugateGradients` and
        `optimizers.StochasticDualDescent` set. `mean_scaling` and `mean_subsample` do not apply to
        these. They take no kernel with a `White` part.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.
    :param num_latent_gps: L.
    :param whiten: parametrise L_b^-1 f(beta) instead of f(beta).
    :param mean_scaling: coordinates in which `a_gamma` is learned: "none", "diagonal" or
        "whitened". The last one makes a gradient step a natural-gradient step, and costs M_gamma^3
        / 3 per refresh.
    :param mean_subsample: number of rows m in the estimate (D25) of the mean's norm, which pays
        with thousands of mean points and with hundreds is noise alone; None computes it in full.
    :param q_mu: mean at beta [M_beta, L]; zeros if not given.
    :param q_sqrt: root of the covariance [L, M_beta, M_beta], lower triangular; identities if not
        given.
    :raises DataError: for points that are not finite and distinct, or a gamma that equals beta.
    :raises UnknownOptionError: for an unknown `mean_scaling`.

    E_q f(beta) = m whatever `a_gamma` is. Cost per step on N inputs: N (M_gamma + M_beta^2) +
    M_beta^3 + m M_gamma, and
    M_gamma^2 more if the coefficients are whitened. Example::

        beta = gd.inducing.select(X, 50, kernel)
        gamma = gd.inducing.select(X, 500, kernel, given=beta)
        basis = OrthogonalBasis(gamma, beta)
        model = BasisGP(kernel, gpflow.likelihoods.Bernoulli(), basis)
    """

    state_type = OrthogonalState
    acts_on_rows = ("tangent", "mean", "root", "t")
    kernel_mean: KernelMean

    def __init__(
        self,
        gamma: InducingVariables | TensorType | str,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.kernel_mean = mean_points(
            gamma, self.beta, num_latent_gps, mean_scaling, mean_subsample
        )
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(
            count_points(self.beta), num_latent_gps, q_mu, q_sqrt
        )

    @property
    def gamma(self) -> InducingVariables:
        """The mean points."""
        return self.kernel_mean.points

    @property
    def a_gamma(self) -> Parameter:
        """The coefficients [M_gamma, L] in the coordinates of `mean_scaling`; `mean_coefficients`
        returns the raw ones.
        """
        return self.kernel_mean.coefficients

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """K_beta with its jitter."""
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> OrthogonalState:
        """chol(K_beta), t, and the mean's norm, in full or from `rows`; M_beta^3 / 3 + M_beta
        M_gamma + m M_gamma.
        """
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.kernel_mean.raw()
        t = whiten_columns(chol, tangent, self.kernel_mean.at(kernel, self.beta, a))  # (D19)
        norm = self._norm(kernel, a, chol, tangent, t, rows) if with_kl else None
        return OrthogonalState(chol, mean, root, a, t, ok, tangent, norm)

    def features(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor) -> Features:
        """Mean (D19) and variances (D20) at X [N, D]; N (M_gamma + M_beta^2)."""
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        of_beta = apply_per_latent(A, state.mean - state.t, adjoint=True)
        mean = self.kernel_mean.values(kernel, state.a, X) + tf.cast(of_beta, X.dtype)  # (D19)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: OrthogonalState) -> tf.Tensor:
        """The divergence (D21) in nats, a scalar; unbiased where the norm is estimated."""
        return 0.5 * norm_of(state) + kl_from_whitened(state.mean, state.root)  # (D21)

    def mean_coefficients(self, state: OrthogonalState) -> tf.Tensor:
        """The raw coefficients a_gamma [M_gamma, L] of equation (11)."""
        return state.a

    def mean_operator(
        self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        """The maps between mean coefficients and the mean at X [N, D]. Raises `ModelError` where
        gamma is the data.
        """
        if not self.kernel_mean.stored:
            raise ModelError(
                'The Newton and natural steps of the mean store K_gamma, which gamma="data" does'
                " not: use optimizers.ConjugateGradients().run(model, data), or fit with its"
                " default mean_solver."
            )
        projection = whiten(state.chol, None, cross_gram(kernel, self.beta, self.gamma))
        cross = gram_to_data(kernel, self.gamma, X)
        return MeanOperator(gram(kernel, self.gamma), cross, projection, features.minus[0])

    def without_mean_points(self) -> CoupledBasis:
        """The coupled basis with the same q(f(beta)), sharing its Parameters."""
        return CoupledBasis(
            self.beta, self.num_latent_gps, whiten=self.whiten, q_mu=self.q_mu, q_sqrt=self.q_sqrt
        )

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        """Recompute the frozen scaling of `a_gamma` at the current residual kernel C; q(f) does not
        change.

        :param kernel: the kernel.
        :param floor: the scaling is that of C + floor * K_gamma, plus floor times the diagonal of
            K_gamma where gamma moves.

        Adam takes steps of one length along every coordinate, whatever its gradient is, and so
        walks at random where C is close to zero. There K_gamma a would grow to a hundred times the
        outputs without any effect on q(f), until a small move of beta, gamma or the kernel lowers
        the bound by thousands of nats. The floor bounds what a unit of a coordinate does to K_gamma
        a, and to a single coefficient.
        """
        gamma = self.gamma

        def matrix() -> tf.Tensor:
            C = residual_gram(kernel, self.beta, gamma)
            if not floor:
                return C
            C += floor * gram(kernel, gamma)
            return (
                tf.linalg.set_diag(C, tf.linalg.diag_part(C) + floor * gram_diagonal(kernel, gamma))
                if moves
                else C
            )

        def diagonal() -> tf.Tensor:
            return residual_diagonal(kernel, self.beta, gamma) + floor * gram_diagonal(
                kernel, gamma
            )

        moves = bool(gamma.trainable_variables)
        self.kernel_mean.refresh(matrix, diagonal, lambda: gram_diagonal(kernel, gamma))

    def gaussians(self, state: OrthogonalState) -> tuple[Gaussian, ...]:
        """q(f(beta)), whitened."""
        return (Gaussian(state.mean, state.root),)

    @property
    def holds_sites(self) -> bool:
        """True where the Parameters are whitened."""
        return self.whiten

    @property
    def ties_sites(self) -> bool:
        """True: q(f(beta)) is one Gaussian, whatever the mean points are."""
        return True

    @property
    def solves_mean(self) -> bool:
        """True: the Hessian of (D49) is that of this basis."""
        return True

    def whiteners(self, state: OrthogonalState) -> tuple[Whitener, ...]:
        """The factor of K_beta."""
        return (Whitener(state.chol, state.ok, state.tangent),)

    def weights_of_rows(self, state: OrthogonalState) -> tf.Tensor:
        """m~ - t, (D19)."""
        return state.mean - state.t

    def with_gaussians(self, state: OrthogonalState, new: tuple[Gaussian, ...]) -> OrthogonalState:
        """With another q(f(beta))."""
        return state._replace(mean=new[0].mean, root=new[0].root)

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        """`q_mu` and `q_sqrt`."""
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: OrthogonalState, new: tuple[Gaussian, ...]) -> None:
        """Write q(f(beta)) to `q_mu` and `q_sqrt`."""
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        """beta and gamma. Raises `ModelError` where gamma is the data."""
        if not self.kernel_mean.stored:
            raise ModelError(
                'gamma="data" keeps a coefficient for every observation, and a stream is not to be'
                " kept: pass points gamma, chosen by inducing.select(X, M, kernel, given=beta)."
            )
        return (self.beta, self.gamma)

    def moved_to(self, *points: InducingVariables) -> OrthogonalBasis:
        """A new basis with the same options on other points beta and gamma, at the prior."""
        beta, gamma = points
        L, mean = self.num_latent_gps, self.kernel_mean
        scaling, subsample = mean.scaling.kind, mean.subsample
        return OrthogonalBasis(
            gamma, beta, L, whiten=self.whiten, mean_scaling=scaling, mean_subsample=subsample
        )

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(f) for Gaussian noise: (D26), (D30), (D31); N (M_gamma^2 + M_beta^2) +
        M_gamma^3 + M_beta^3.

        Raises `ModelError` where gamma is the data.
        """
        if not self.kernel_mean.stored:
            raise ModelError(
                'The closed form stores K_gamma, which gamma="data" does not: use'
                " optimizers.ConjugateGradients().run(model, data), which reaches the same optimum"
                " to a certified gap."
            )
        return orthogonal_optimum(kernel, self.beta, self.kernel_mean, data)

    def _norm(
        self,
        kernel: Kernel,
        a: tf.Tensor,
        chol: tf.Tensor,
        tangent: tf.Tensor | None,
        t: tf.Tensor,
        rows: tf.Tensor | None,
    ) -> tf.Tensor:
        """a^T C_g a: a^T K_g a - t^T t, or from rows of C_g a = K_g a - K_gb w, drawn here if none
        are given.
        """
        rows = self.draw_rows() if rows is None else rows
        products = self.kernel_mean.products(kernel, a, rows)
        if rows is None:
            return tf.reduce_sum(a * products) - tf.reduce_sum(
                tf.square(t)
            )  # (D21), where a^T K_gb w = t^T t
        w = whiten_columns(chol, tangent, t, adjoint=True)
        products -= gram_product(kernel, self.beta, self.gamma, w, rows=rows, whole=True)
        return self.kernel_mean.norm(a, products, rows)  # (D25)
