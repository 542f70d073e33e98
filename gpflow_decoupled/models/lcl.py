"""A full GP whose q(f) is given by the multipliers of a Lagrangian, two numbers an observation."""

from __future__ import annotations

__all__ = ["LCLGP"]

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood

from ..bases import DualBasis
from ..errors import DataError
from ..likelihoods import SiteLoss, site_loss
from .full_gp import FullGP


class LCLGP(FullGP):
    """Decoupled variational Gaussian inference for a full GP (Khan 2014): a `DualBasis` on the data, which the model owns.

    :param data: X [N, D], Y [N, L]. :param kernel: any GPflow kernel but linear coregionalisation, whose outputs share
        their latents. :param likelihood: one that has a site loss, see `likelihoods.site_loss`.
    :param mean_function: m_0(x) [N, L]; zero if not given.
    :param num_latent_gps: L; by default what the likelihood or the kernel say, else the columns of Y.
    :param form: of the basis, "function" or, for linear kernels, "weight".

    `optimizers.LinearlyConstrainedLagrangian` finds the multipliers. `training_loss` is the negative bound at fixed
    multipliers, to be minimised over everything else, (V24): it is a bound at every kernel, and at the best multipliers its
    gradient is that of the best bound. Raises `DataError` for unusable data, and a likelihood that has no site loss.
    Cost of a bound: 2/3 N^3 a latent, or N p^2. Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = LinearlyConstrainedLagrangian().run(model)
    """

    basis: DualBasis

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        form: str = "function",
    ) -> None:
        if isinstance(kernel, LinearCoregionalization):
            raise DataError(
                "LinearCoregionalization mixes latents into outputs, and a site of this model sees one latent alone; use a "
                "SeparateIndependent or SharedIndependent kernel, or CVIGP."
            )
        super().__init__(data, kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps)
        self.basis = DualBasis(self.data[0].numpy(), self.num_latent_gps, form)
        self.site_loss()

    def site_loss(self) -> SiteLoss:
        """The site losses f_n of the data [N, L], at the likelihood's Parameters as they are now."""
        return site_loss(self.likelihood, self.data[1])

    def prior_mean(self) -> tf.Tensor:
        """m_0 at the data [N, L]."""
        mean = self.mean_function(self.data[0])
        return tf.broadcast_to(tf.cast(mean, self.data[0].dtype), [self.basis.num_data, self.num_latent_gps])

    def elbo(self) -> tf.Tensor:
        """The evidence lower bound in nats, a scalar: (V10), with the site loss's own expectations."""
        state = self.basis.factor(self.kernel)
        losses = self.site_loss().value(self.prior_mean() + state.mean, tf.sqrt(state.variance))
        return -tf.reduce_sum(losses) - self.basis.prior_kl(state)  # (V10), (V24)
