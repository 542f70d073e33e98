"""Constructors of decoupled models."""

from __future__ import annotations

__all__ = ["DVGP", "HDVGP", "ODVGP", "SOLVEGP"]

from collections.abc import Callable
from typing import ClassVar

from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import DecoupledBasis, HybridBasis, InducingBasis, SolveBasis
from ..bases.mean_on_data import orthogonal_basis
from ..inducing.variables import as_inducing
from .basis_gp import BasisGP
from .checks import infer_num_latent_gps
from .monte_carlo import MonteCarlo


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
