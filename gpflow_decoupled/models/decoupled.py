"""Short constructors of the obvious combinations; no mathematics of their own."""

from __future__ import annotations

__all__ = ["DVGP", "HDVGP", "ODVGP", "SOLVEGP"]

from typing import Any

from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import DecoupledBasis, HybridBasis, OrthogonalBasis, SolveBasis
from ..inducing.variables import as_inducing
from .basis_gp import BasisGP
from .checks import infer_num_latent_gps
from .monte_carlo import MonteCarlo


class ODVGP(BasisGP):
    """Orthogonally decoupled variational GP (Salimbeni et al. 2018): a `BasisGP` with an `OrthogonalBasis`.

    :param gamma: mean points [M_gamma, D]. :param beta: inducing points [M_beta, D].
    :param num_latent_gps: L; by default what the likelihood or the kernel say, else 1.
    :param num_data: N of the whole data set; `fit` sets it.
    :param expectations: a `MonteCarlo` takes the data term from draws, for likelihoods whose quadrature is dear.

    The other arguments are those of `OrthogonalBasis`, which also says the cost and the errors. Example::

        model = ODVGP(gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), gamma, beta)
        result = gpflow_decoupled.fit(model, (X, Y))
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        gamma: Any,
        beta: Any,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        expectations: MonteCarlo | None = None,
    ) -> None:
        basis = OrthogonalBasis(
            as_inducing(gamma, "gamma", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            whiten=whiten,
            mean_scaling=mean_scaling,
            mean_subsample=mean_subsample,
        )
        super().__init__(
            kernel, likelihood, basis, mean_function=mean_function, num_data=num_data, expectations=expectations
        )


class HDVGP(BasisGP):
    """Hybrid decoupled variational GP (Cheng & Boots 2017, appendix): a `BasisGP` with a `HybridBasis`.

    Arguments as `ODVGP`.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        gamma: Any,
        beta: Any,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        expectations: MonteCarlo | None = None,
    ) -> None:
        basis = HybridBasis(
            as_inducing(gamma, "gamma", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            whiten=whiten,
            mean_scaling=mean_scaling,
            mean_subsample=mean_subsample,
        )
        super().__init__(
            kernel, likelihood, basis, mean_function=mean_function, num_data=num_data, expectations=expectations
        )


class DVGP(BasisGP):
    """Decoupled variational GP (Cheng & Boots 2017): a `BasisGP` with a `DecoupledBasis`.

    :param alpha: mean points [M_alpha, D]. :param beta: covariance points [M_beta, D].
    :param covariance: "inverse" (their parametrisation) or "coupled". Other arguments as `ODVGP`.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        alpha: Any,
        beta: Any,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        covariance: str = "inverse",
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        expectations: MonteCarlo | None = None,
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
            kernel, likelihood, basis, mean_function=mean_function, num_data=num_data, expectations=expectations
        )


class SOLVEGP(BasisGP):
    """Sparse orthogonal variational GP (Shi, Titsias & Mnih 2020): a `BasisGP` with a `SolveBasis`.

    :param gamma: points of the orthogonal part [M_gamma, D]. :param beta: inducing points [M_beta, D].
    Other arguments as `ODVGP`; the mean needs no scaling here, since both parts have natural gradients.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        gamma: Any,
        beta: Any,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        whiten: bool = True,
        expectations: MonteCarlo | None = None,
    ) -> None:
        basis = SolveBasis(
            as_inducing(gamma, "gamma", kernel),
            as_inducing(beta, "beta", kernel),
            infer_num_latent_gps(kernel, likelihood, num_latent_gps),
            whiten=whiten,
        )
        super().__init__(
            kernel, likelihood, basis, mean_function=mean_function, num_data=num_data, expectations=expectations
        )
