"""Bases with one Gaussian at the inducing points."""

from __future__ import annotations

__all__ = ["OneGaussianBasis"]

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_factor
from ..inducing.variables import as_inducing, count_points
from ..linalg.whitening import Whitener
from .base import GaussianPart, State
from .inducing_basis import InducingBasis
from .parts.inducing_gaussian import assign_whitened, gaussian_parameters


class OneGaussianBasis(InducingBasis):
    """Base class of bases with the Parameters `q_mu` and `q_sqrt` of one Gaussian at beta.

    Their states have `chol`, `mean`, `root`, `ok` and `tangent`, see `CoupledState`. Parameters as
    in `CoupledBasis`, beta [M_beta, D].
    """

    keeps_conditional = True

    def __init__(
        self,
        beta: InducingVariables | TensorType,
        num_latent_gps: int,
        whiten: bool,
        q_mu: TensorType | None,
        q_sqrt: TensorType | None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(
            count_points(self.beta), num_latent_gps, q_mu, q_sqrt
        )

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    @property
    def holds_sites(self) -> bool:
        return self.whiten

    @property
    def ties_sites(self) -> bool:
        return True

    def whiteners(self, state: State) -> tuple[Whitener, ...]:
        return (Whitener(state.chol, state.ok, state.tangent),)

    def gaussians(self, state: State) -> tuple[GaussianPart, ...]:
        return (GaussianPart(state.mean, state.root),)

    def with_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> State:
        return state._replace(mean=new[0].mean, root=new[0].root)

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> None:
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)
