"""A mean on all training inputs."""

from __future__ import annotations

__all__ = ["MeanOnDataBasis", "orthogonal_basis"]

from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import MULTIOUTPUT_INDUCING
from ..errors import DataError, ModelError, check_option
from ..inducing.variables import count_points, input_dims
from ..summaries import short_repr
from .kernel_mean import SCALINGS
from .optimum import DataMean
from .orthogonal import OrthogonalBasis, OrthogonalMeanBasis, OrthogonalState


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
