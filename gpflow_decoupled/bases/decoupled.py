"""The decoupled basis: two sets of points."""

# Cheng & Boots 2017 (arXiv:1711.10127), equations (8)-(9); Salimbeni et al. 2018
# (arXiv:1809.08820). The mean is a sum of kernels at points alpha with coefficients a; the
# covariance lives on points beta.
#
# covariance="inverse", (D5), (D7): with B = C C^T, H = I + C^T K_b C = L_H L_H^T and T_x = L_H^-1
# C^T k_bx,
#
#   m(x) = k_xa a,   s(x, x') = k(x, x') - T_x^T T_x'
#   KL = 1/2 [a^T K_a a + log|H| - M + tr H^-1]
#
# covariance="coupled", (D9): the coupled basis's covariance, KL = 1/2 a^T K_a a + 1/2 [tr S~ - M -
# log|S~|].

from __future__ import annotations

__all__ = ["DecoupledBasis", "DecoupledState"]

from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import gram, gram_diagonal, gram_to_data, gram_to_factor
from ..errors import DataError, check_option
from ..inducing.variables import as_inducing, count_points, input_dims
from ..linalg.cholesky import cholesky
from ..linalg.triangular import inverse, solve, transposed_product
from ..linalg.whitening import Whitener, kl_from_whitened, whiten, whitener
from .base import Features, GaussianPart
from .inducing import (
    InducingBasis,
    assign_whitened,
    inverse_root,
    norm_of,
    root_parameter,
    whitened,
)
from .kernel_mean import KernelMean, MeanOperator
from .optimum import (
    OptimalParameters,
    Regression,
    best_precision,
    best_root,
    collapsed_bound,
    fit_mean_points,
    no_mean_points,
    project,
)

INITIAL_ROOT = 0.1
"""chol_B starts at this times the identity: zero is a saddle point with a vanishing gradient."""


class DecoupledState(NamedTuple):
    """State of a `DecoupledBasis`."""

    chol: tf.Tensor
    """Factor of H ("inverse") [L, M_beta, M_beta], or of K_beta ("coupled") [G, M_beta, M_beta]."""
    root: tf.Tensor
    """C, or a root of S~, [L, M_beta, M_beta]."""
    a: tf.Tensor
    """Raw coefficients [M_alpha, L]."""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None
    """a^T K_a a, a scalar, if the divergence is wanted."""


class DecoupledBasis(InducingBasis):
    """q(f) with mean points alpha and covariance points beta.

    Only the "coupled" covariance has a natural gradient; `a` and `chol_B` are learned by gradients,
    and the bound is not concave in `chol_B`. Cost per step on N inputs: N (M_alpha + M_beta^2) +
    M_beta^3 + m M_alpha.

    :param alpha: mean points [M_alpha, D], or a GPflow inducing variable.
    :param beta: covariance points [M_beta, D], or a GPflow inducing variable.
    :param num_latent_gps: L.
    :param covariance: "inverse", S^-1 = K_b^-1 + B with Parameter `chol_B` [L, M_beta, M_beta], or
        "coupled" with Parameter `q_sqrt` [L, M_beta, M_beta].
    :param whiten: whiten `q_sqrt`; not used by "inverse".
    :param mean_scaling: of `a` [M_alpha, L]; this and `mean_subsample` as in `OrthogonalBasis`.

    Example::

        basis = DecoupledBasis(X[:500], X[:50], covariance="coupled")
        model = BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), basis)
    """

    state_type = DecoupledState
    keeps_conditional = True
    kernel_mean: KernelMean

    def __init__(
        self,
        alpha: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        covariance: str = "inverse",
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
    ) -> None:
        super().__init__()
        check_option("covariance", covariance, ("inverse", "coupled"))
        self.beta = as_inducing(beta, "beta")
        self.kernel_mean = KernelMean(alpha, "alpha", num_latent_gps, mean_scaling, mean_subsample)
        columns = {"alpha": input_dims(self.alpha), "beta": input_dims(self.beta)}
        if None not in columns.values() and columns["alpha"] != columns["beta"]:
            raise DataError(
                f"alpha has {columns['alpha']} columns and beta {columns['beta']}: both need the"
                " same number of columns as X."
            )
        self.num_latent_gps = num_latent_gps
        self.covariance = covariance
        self.whiten = whiten
        root = root_parameter(count_points(self.beta), num_latent_gps)
        if covariance == "coupled":
            self.q_sqrt = root
        else:
            root.assign(INITIAL_ROOT * root)
            self.chol_B = root

    @property
    def sizes(self) -> dict[str, int | str]:
        return {"alpha": self.kernel_mean.size, "beta": count_points(self.beta)}

    @property
    def alpha(self) -> InducingVariables:
        """The mean points."""
        return self.kernel_mean.points

    @property
    def a(self) -> Parameter:
        """Coefficients [M_alpha, L] in the coordinates of `mean_scaling`."""
        return self.kernel_mean.coefficients

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        K_b = gram_to_factor(kernel, self.beta)
        return (
            {"K_beta": K_b}
            if self.covariance == "coupled"
            else {"H = I + C^T K_beta C": self._H(K_b)}
        )

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> DecoupledState:
        K_b = gram_to_factor(kernel, self.beta)
        if self.covariance == "coupled":
            chol, ok, tangent = whitener(K_b)
            root = whitened(chol, tangent, None, self.q_sqrt, self.whiten).root
        else:
            chol, ok = cholesky(self._H(K_b))
            tangent = None  # (D7) has the determinant of H: differentiate its factor itself
            root = tf.linalg.band_part(tf.convert_to_tensor(self.chol_B), -1, 0)
        a = self.kernel_mean.raw()
        norm = None
        if with_kl:
            rows = self.draw_rows() if rows is None else rows
            norm = self.kernel_mean.norm(kernel, a, rows)
        return DecoupledState(chol, root, a, ok, tangent, norm)

    def features(self, state: DecoupledState, kernel: Kernel, X: tf.Tensor) -> Features:
        mean = self.kernel_mean.values(kernel, state.a, X)
        K_bx = gram_to_data(kernel, self.beta, X)
        if self.covariance == "coupled":
            A = whiten(state.chol, state.tangent, K_bx)
            return Features(mean, (A,), (transposed_product(state.root, A),))  # (D9)
        # (D7)
        return Features(mean, (solve(state.chol, transposed_product(state.root, K_bx)),), ())

    def whitened_rows(
        self, kernel: Kernel, X: tf.Tensor, features: Features | None = None
    ) -> tuple[tf.Tensor, ...]:
        # a root of B takes the place of A in (D7)
        return super().whitened_rows(kernel, X, features if self.covariance == "coupled" else None)

    def prior_kl(self, state: DecoupledState) -> tf.Tensor:
        if self.covariance == "coupled":
            return 0.5 * norm_of(state) + kl_from_whitened(
                tf.zeros([], state.root.dtype), state.root
            )  # (D9)
        diagonal = tf.linalg.diag_part(state.chol)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(diagonal))
        trace = tf.reduce_sum(tf.square(inverse(state.chol)))
        # (D7)
        return 0.5 * (norm_of(state) + log_det - tf.cast(tf.size(diagonal), trace.dtype) + trace)

    def mean_coefficients(self, state: DecoupledState) -> tf.Tensor:
        return state.a

    def mean_operator(
        self, state: DecoupledState, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        return MeanOperator(gram(kernel, self.alpha), gram_to_data(kernel, self.alpha, X))

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        self.kernel_mean.refresh(
            lambda: gram(kernel, self.alpha), lambda: gram_diagonal(kernel, self.alpha)
        )

    def gaussians(self, state: DecoupledState) -> tuple[GaussianPart, ...]:
        """The covariance S~ of "coupled", without a mean; nothing for "inverse"."""
        return (GaussianPart(None, state.root),) if self.covariance == "coupled" else ()

    @property
    def holds_sites(self) -> bool:
        """True for "coupled" with a whitened `q_sqrt`."""
        return self.whiten and self.covariance == "coupled"

    def whiteners(self, state: DecoupledState) -> tuple[Whitener, ...]:
        return (Whitener(state.chol, state.ok, state.tangent),)

    def with_gaussians(
        self, state: DecoupledState, new: tuple[GaussianPart, ...]
    ) -> DecoupledState:
        return state._replace(root=new[0].root)

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        return (self.q_sqrt,) if self.covariance == "coupled" else ()

    def assign_gaussians(self, state: DecoupledState, new: tuple[GaussianPart, ...]) -> None:
        assign_whitened(state.chol, new[0], None, self.q_sqrt, self.whiten)

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q for Gaussian noise; N (M_alpha^2 + M_beta^2) + M_alpha^3 + M_beta^3."""
        # (D26)-(D28)
        chol, A = project(kernel, self.beta, data.X)
        fit = no_mean_points(data)
        if self.kernel_mean.size > 0:
            operator = MeanOperator(
                gram(kernel, self.alpha), gram_to_data(kernel, self.alpha, data.X)
            )
            fit = fit_mean_points(operator, None, data)
        precision = best_precision(A, data.noise)
        elbo = collapsed_bound(kernel, data, [A], [precision], fit)
        if self.covariance == "coupled":
            root = best_root(precision, self.num_latent_gps)
            return OptimalParameters(elbo, fit.coefficients, (GaussianPart(None, root),))
        root = inverse_root(chol, precision - tf.eye(tf.shape(A)[-2], dtype=A.dtype))  # (D27)
        root = tf.broadcast_to(root, [self.num_latent_gps, *root.shape[1:]])
        return OptimalParameters(elbo, fit.coefficients, (), root)

    def write_optimum(self, kernel: Kernel, optimum: OptimalParameters) -> None:
        super().write_optimum(kernel, optimum)
        if optimum.chol_B is not None:
            self.chol_B.assign(optimum.chol_B)

    def _H(self, K_b: tf.Tensor) -> tf.Tensor:
        C = tf.linalg.band_part(tf.convert_to_tensor(self.chol_B), -1, 0)
        inner = transposed_product(C, tf.matmul(K_b, C))
        return 0.5 * (inner + tf.linalg.matrix_transpose(inner)) + tf.eye(
            tf.shape(inner)[-1], dtype=inner.dtype
        )
