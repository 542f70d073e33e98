"""Constructors of decoupled models."""

from __future__ import annotations

__all__ = ["DTC", "DVGP", "HDVGP", "ODVGP", "SOLVEGP", "SparseCVIGP"]

import math
from collections.abc import Callable
from typing import ClassVar

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorData, TensorType
from gpflow.covariances import Kuf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import SGPR
from gpflow.posteriors import PrecomputeCacheType, SGPRPosterior

from ..bases import Basis, CoupledBasis, DecoupledBasis, HybridBasis, InducingBasis, SolveBasis
from ..bases.inducing import whiten_columns
from ..bases.orthogonal import orthogonal_basis
from ..covariances.latents import inducing_gram
from ..errors import DataError, check_parameters
from ..inducing.variables import as_inducing, input_dims
from ..inputs import as_array, as_pair, as_values, check_finite_entries, float_type
from ..linalg.cholesky import add_jitter, cholesky
from ..linalg.triangular import solve
from ..linalg.whitening import apply_per_latent, precision_from_root
from ..posteriors import cache_type, near_inputs
from .basis_gp import BasisGP
from .checks import (
    CheckedPredictions,
    MonteCarlo,
    check_kernel,
    check_parts,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    refuse_variables,
)


class _MeanPointsGP(BasisGP):
    """A model of gamma and beta, whose basis the subclass makes."""

    _make_basis: ClassVar[Callable[..., InducingBasis]]

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        gamma: InducingVariables | TensorType | str,
        beta: InducingVariables | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        expectations: MonteCarlo | None = None,
        bound: str = "classical",
    ) -> None:
        basis = self._make_basis(
            gamma if isinstance(gamma, str) else as_inducing(gamma, "gamma", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            whiten=whiten,
            mean_scaling=mean_scaling,
            mean_subsample=mean_subsample,
        )
        super().__init__(
            kernel,
            likelihood,
            basis,
            mean_function=mean_function,
            num_data=num_data,
            expectations=expectations,
            bound=bound,
        )


class ODVGP(_MeanPointsGP):
    """Orthogonally decoupled variational GP (Salimbeni et al. 2018): an `OrthogonalBasis`.

    Other arguments as `BasisGP`.

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable; or "data", all training
        inputs (then `with_neighbours` gives better variances).
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.
    :param num_latent_gps: L; by default the likelihood's or the kernel's, else 1.
    :param whiten: parametrise q(f(beta)) in whitened coordinates.
    :param mean_scaling: coordinates of the mean coefficients: "none", "diagonal" or "whitened".
    :param mean_subsample: rows in the estimate of the mean's norm, for thousands of mean points.

    Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        model = ODVGP(kernel, likelihood, gamma, beta)
        result = gpflow_decoupled.fit(model, (X, Y))
    """

    _make_basis = staticmethod(orthogonal_basis)


class HDVGP(_MeanPointsGP):
    """Hybrid decoupled variational GP (Cheng & Boots 2017, appendix): a `HybridBasis`.

    Other arguments as `ODVGP`, which has the same posteriors in better coordinates.

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.

    Example::

        model = HDVGP(kernel, likelihood, gamma, beta)
    """

    _make_basis = HybridBasis


class DVGP(BasisGP):
    """Decoupled variational GP (Cheng & Boots 2017): a `DecoupledBasis`.

    Other arguments as `ODVGP`.

    :param alpha: mean points [M_alpha, D], or a GPflow inducing variable.
    :param beta: covariance points [M_beta, D], or a GPflow inducing variable.
    :param covariance: "inverse", as in the paper, or "coupled", as in `gpflow.models.SVGP`.

    Example::

        model = DVGP(kernel, likelihood, alpha, beta, covariance="coupled")
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        alpha: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        covariance: str = "inverse",
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        expectations: MonteCarlo | None = None,
        bound: str = "classical",
    ) -> None:
        basis = DecoupledBasis(
            as_inducing(alpha, "alpha", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            covariance=covariance,
            whiten=whiten,
            mean_scaling=mean_scaling,
            mean_subsample=mean_subsample,
        )
        super().__init__(
            kernel,
            likelihood,
            basis,
            mean_function=mean_function,
            num_data=num_data,
            expectations=expectations,
            bound=bound,
        )


class SOLVEGP(BasisGP):
    """Sparse orthogonal variational GP (Shi, Titsias & Mnih 2020): a `SolveBasis`.

    Other arguments as `ODVGP`, without mean coefficients; both Gaussians have natural gradients.

    :param gamma: points of the orthogonal part [M_gamma, D], or a GPflow inducing variable.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.

    Example::

        model = SOLVEGP(kernel, likelihood, gamma, beta)
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        gamma: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        whiten: bool = True,
        expectations: MonteCarlo | None = None,
        bound: str = "classical",
    ) -> None:
        basis = SolveBasis(
            as_inducing(gamma, "gamma", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            whiten=whiten,
        )
        super().__init__(
            kernel,
            likelihood,
            basis,
            mean_function=mean_function,
            num_data=num_data,
            expectations=expectations,
            bound=bound,
        )


# ---
# Conjugate computation on inducing variables.


class SparseCVIGP(BasisGP):
    """Sparse conjugate-computation VI (Khan & Lin 2017; Adam et al. 2021).

    A `BasisGP` with a whitened `CoupledBasis`: q(u) is its prior times Gaussian sites, which `fit`
    keeps while the kernel changes. `optimizers.sweep` updates q by passes over all data. Cost per
    step on N inputs: M^3 + N M^2. Other arguments as `BasisGP`.

    :param inducing_variable: points [M, D]; a GPflow inducing variable, such as `inducing.Weights`;
        or an `OrthogonalBasis`, whose (q_mu, q_sqrt) have the sites.
    :param mean_function: m_0(x) [N, P], the centre of the sites; zero if not given.
    :param num_latent_gps: L; by default the basis's, the likelihood's or the kernel's, else 1.

    Example::

        model = SparseCVIGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), Z)
        result = gpflow_decoupled.fit(model, (X, Y))
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | InducingBasis | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        expectations: MonteCarlo | None = None,
    ) -> None:
        basis = _as_basis(kernel, likelihood, inducing_variable, num_latent_gps)
        super().__init__(
            kernel,
            likelihood,
            basis,
            mean_function=mean_function,
            num_data=num_data,
            expectations=expectations,
        )

    def sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The site of q(u) = N(m, S): S^-1 = K_u^-1 + Lambda_2, m = S lambda_1; M^3 per latent.

        `fit` keeps it while the kernel changes; other optimizers keep `q_mu` and `q_sqrt`.

        :return: lambda_1 [M, L] and Lambda_2 [L, M, M].
        """
        # (C22); (C25) and (C28) move it
        state = self.basis.factor(self.kernel, with_kl=False)
        (part,), (frame,) = self.basis.gaussians(state), self.basis.whiteners(state)
        precision = precision_from_root(part.root)
        theta = apply_per_latent(precision, part.mean)  # (C24)
        whitened = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - 1.0)  # (C24)
        half = solve(frame.chol, whitened, adjoint=True)
        sites = solve(frame.chol, tf.linalg.matrix_transpose(half), adjoint=True)
        return whiten_columns(frame.chol, None, theta, adjoint=True), sites


def _as_basis(
    kernel: Kernel,
    likelihood: Likelihood,
    inducing_variable: InducingVariables | Basis | TensorType,
    num_latent_gps: int | None,
) -> InducingBasis:
    if not isinstance(inducing_variable, Basis):
        latents = infer_num_latent_gps(kernel, likelihood, num_latent_gps)
        return CoupledBasis(as_inducing(inducing_variable, "inducing_variable", kernel), latents)
    basis = inducing_variable
    if not isinstance(basis, InducingBasis) or not (basis.ties_sites and basis.holds_sites):
        raise DataError(
            f"inducing_variable is a {type(basis).__name__}, which cannot keep one site of q(u)"
            " while the kernel changes: pass an OrthogonalBasis or a CoupledBasis with"
            " whiten=True, or use BasisGP."
        )
    if num_latent_gps not in (None, basis.num_latent_gps):
        raise DataError(
            f"num_latent_gps={num_latent_gps} and the basis has {basis.num_latent_gps}; leave the"
            " argument out."
        )
    return basis


# ---
# Regression by the deterministic training conditional (Seeger, Williams & Lawrence 2003).


# With A = L_u^-1 K_uf / s, B = I + A A^T = L_B L_B^T, c = L_B^-1 A y / s and A_* = L_u^-1 K_u*,
# (C40), (C41):
#
#   log N(y; 0, Q + s^2 I) = -1/2 [N log 2 pi s^2 + log|B| + |y|^2 / s^2 - |c|^2]
#   mean A_*^T L_B^-T c,   variance k_** - |A_*|^2 + |L_B^-1 A_*|^2


class DTC(CheckedPredictions, SGPR):
    """GPflow's `SGPR` with the projected process's likelihood: the bound without its trace term.

    Predictions, `elbo` and arguments are `SGPR`'s. The objective may exceed log p(y), and points
    overfit. Cost: N M^2 + M^3.

    :param data: X [N, D], Y [N, P]; the outputs share the kernel.
    :param inducing_variable: points Z [M, D], or a GPflow inducing variable.
    :param mean_function: as of `SGPR`.
    :param num_latent_gps: L; by default the columns of Y.
    :param noise_variance: of a Gaussian likelihood, one if not given; or give `likelihood`.

    Example::

        model = DTC((X, Y), gpflow.kernels.SquaredExponential(), Z, noise_variance=0.1)
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
    ) -> None:
        noise = Gaussian()
        check_parts(kernel, noise)
        dtype = float_type(kernel)
        refuse_variables(data, type(self))
        X, Y = (as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY"))
        points = as_inducing(inducing_variable, "inducing_variable")
        latents = Y.shape[-1] if Y.ndim else 1  # what has no rank is refused below
        check_shapes_of_data(X, Y, noise, latents, input_dims(points), dtype)
        check_values(X, Y, noise, kernel)
        check_kernel(kernel, X.shape[1])
        super().__init__(
            (X, Y),
            kernel,
            points,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            noise_variance=noise_variance,
            likelihood=likelihood,
        )

    @property
    def num_dims(self) -> int:
        return int(self.data[0].shape[1])

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        dtype = self.float_type
        X, Y = (as_array(array, name, dtype) for array, name in zip(as_pair(data), "XY"))
        check_shapes_of_data(X, Y, self.likelihood, self.num_latent_gps, self.num_dims, dtype)
        check_finite_entries(X, "X")
        check_finite_entries(Y, "Y")
        return tf.convert_to_tensor(X), tf.cast(Y, dtype)

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D], in GPflow's shapes; the noise is not in them."""
        # (C41)
        check_parameters(self, "posterior of f at Xnew")
        X = near_inputs(self.inputs(Xnew), self.kernel, self.mean_function, full_cov)
        return super().predict_f(X, full_cov, full_output_cov)

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> SGPRPosterior:
        """A posterior for fast predictions, with the present Parameters' factorisations.

        :param precompute_cache: "tensor", "variable" (can be exported, and updated in place), or
            "nocache".
        """
        check_parameters(self, "posterior of f")
        return super().posterior(cache_type(precompute_cache))

    @inherit_check_shapes
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The approximate log evidence log N(y; m(X), Q + s^2 I) in nats, a scalar."""
        # (C40)
        X, Y = self.data
        noise = tf.squeeze(self.likelihood.variance_at(X), axis=-1)  # [N]
        y = (Y - self.mean_function(X)) / tf.sqrt(noise)[:, None]
        chol = cholesky(add_jitter(inducing_gram(self.inducing_variable, self.kernel))).chol
        A = solve(chol, Kuf(self.inducing_variable, self.kernel, X) / tf.sqrt(noise))
        B = tf.matmul(A, A, transpose_b=True)
        chol_B = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)).chol
        c = solve(chol_B, tf.matmul(A, y))
        log_det = tf.reduce_sum(tf.math.log(2.0 * math.pi * noise))
        log_det += 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol_B)))
        outputs = tf.cast(tf.shape(Y)[1], y.dtype)
        return -0.5 * (
            outputs * log_det + tf.reduce_sum(tf.square(y)) - tf.reduce_sum(tf.square(c))
        )  # (C40)
