"""Regression by the deterministic training conditional (Seeger, Williams & Lawrence 2003)."""

# With A = L_u^-1 K_uf / s, B = I + A A^T = L_B L_B^T, c = L_B^-1 A y / s and A_* = L_u^-1 K_u*,
# (C40), (C41):
#
#   log N(y; 0, Q + s^2 I) = -1/2 [N log 2 pi s^2 + log|B| + |y|^2 / s^2 - |c|^2]
#   mean A_*^T L_B^-T c,   variance k_** - |A_*|^2 + |L_B^-1 A_*|^2

from __future__ import annotations

__all__ = ["DTC"]

import math

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorData, TensorType
from gpflow.covariances import Kuf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.models import SGPR
from gpflow.posteriors import PrecomputeCacheType, SGPRPosterior

from ..covariances.latents import inducing_gram
from ..errors import check_parameters
from ..inducing.variables import as_inducing, input_dims
from ..inputs import as_array, as_pair, as_values, check_finite_entries, float_type
from ..linalg.cholesky import add_jitter, cholesky
from ..linalg.triangular import solve
from ..posteriors import cache_type, near_inputs
from .checks import (
    CheckedPredictions,
    check_kernel,
    check_parts,
    check_shapes_of_data,
    check_values,
    refuse_variables,
)


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
