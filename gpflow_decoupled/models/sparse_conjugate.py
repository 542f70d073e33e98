"""Conjugate computation on inducing variables."""

from __future__ import annotations

__all__ = ["SparseCVIGP"]

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import Basis, CoupledBasis, InducingBasis
from ..bases.parts.inducing_gaussian import whiten_columns
from ..errors import DataError
from ..inducing.variables import as_inducing
from ..linalg.gaussians import apply_per_latent, precision_from_root
from ..linalg.triangular import solve
from .basis_gp import BasisGP
from .checks import infer_num_latent_gps
from .monte_carlo import MonteCarlo


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
