"""Constructors of `BasisGP` with one of the decoupled bases; they have no mathematics of their
own.
"""

from __future__ import annotations

__all__ = ["DVGP", "HDVGP", "ODVGP", "SOLVEGP"]

from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import DecoupledBasis, HybridBasis, SolveBasis
from ..bases.mean_on_data import orthogonal_basis
from ..inducing.variables import as_inducing
from .basis_gp import BasisGP
from .checks import infer_num_latent_gps
from .monte_carlo import MonteCarlo


class ODVGP(BasisGP):
    """Orthogonally decoupled variational GP (Salimbeni et al. 2018): a `BasisGP` with an
    `OrthogonalBasis`, or for gamma="data" a `MeanOnDataBasis`.

    The mean uses the points gamma and beta, the covariance beta alone, and the points gamma
    contribute what beta cannot.

    :param kernel: any GPflow kernel.
    :param likelihood: any GPflow likelihood.
    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable; or "data" for a mean on
        all training inputs, which `fit` solves for, see `optimizers.ConjugateGradients`.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.
    :param mean_function: m(x) [N, P]; zero if not given.
    :param num_latent_gps: L; by default what the likelihood or the kernel state, else 1.
    :param num_data: N of the whole data set; `fit` sets it.
    :param whiten: parametrise q(f(beta)) in whitened coordinates.
    :param mean_scaling: coordinates of the mean coefficients: "none", "diagonal" or "whitened".
    :param mean_subsample: number of rows in the estimate of the mean's norm, for thousands of mean
        points; None computes it in full.
    :param expectations: a `MonteCarlo` estimates the data term from draws, for likelihoods whose
        quadrature is expensive.
    :raises DataError: for points that are not finite and distinct, or a gamma that equals beta.

    Cost: see `OrthogonalBasis`. Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        model = ODVGP(kernel, likelihood, gamma, beta)
        result = gpflow_decoupled.fit(model, (X, Y))
    """

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
    ) -> None:
        basis = orthogonal_basis(
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
        )


class HDVGP(BasisGP):
    """Hybrid decoupled variational GP (Cheng & Boots 2017, appendix): a `BasisGP` with a
    `HybridBasis`.

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.

    The other arguments are those of `ODVGP`, which describes the same posteriors in better
    coordinates. Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        model = HDVGP(kernel, likelihood, gamma, beta)
        result = gpflow_decoupled.fit(model, (X, Y))
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
            kernel,
            likelihood,
            basis,
            mean_function=mean_function,
            num_data=num_data,
            expectations=expectations,
        )


class DVGP(BasisGP):
    """Decoupled variational GP (Cheng & Boots 2017): a `BasisGP` with a `DecoupledBasis`.

    :param alpha: mean points [M_alpha, D], or a GPflow inducing variable.
    :param beta: covariance points [M_beta, D], or a GPflow inducing variable.
    :param covariance: "inverse", the parametrisation of the paper, or "coupled", that of
        `gpflow.models.SVGP`.

    The other arguments are those of `ODVGP`. Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        model = DVGP(kernel, likelihood, alpha, beta, covariance="coupled")
        result = gpflow_decoupled.fit(model, (X, Y))
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
        )


class SOLVEGP(BasisGP):
    """Sparse orthogonal variational GP (Shi, Titsias & Mnih 2020): a `BasisGP` with a `SolveBasis`.

    :param gamma: points of the orthogonal part [M_gamma, D], or a GPflow inducing variable.
    :param beta: inducing points [M_beta, D], or a GPflow inducing variable.

    The other arguments are those of `ODVGP`, without those of the mean coefficients: here gamma has
    a Gaussian of its own, and
    both Gaussians have natural gradients. Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        model = SOLVEGP(kernel, likelihood, gamma, beta)
        result = gpflow_decoupled.fit(model, (X, Y))
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
        )
