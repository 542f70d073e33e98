"""What models whose q(f) is a basis answer: predictions, and for `diagnostics` the moments of f
and the expected log densities at observations.
"""

from __future__ import annotations

__all__ = ["BasisPredictions"]

import abc

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.posteriors import PrecomputeCacheType

from ..bases import Basis
from ..errors import DataError
from ..likelihoods.nodes import finer, nodes_of
from ..posteriors import BasisPosterior
from .checks import CheckedPredictions
from .expectations import Moments, Resolution


class BasisPredictions(CheckedPredictions, abc.ABC):
    """A model with a `basis`, which predicts by a `BasisPosterior`.

    Example::

        mean, variance = model.predict_f(Xnew)
        posterior = model.posterior()  # for many predictions
    """

    basis: Basis
    """The parametrisation of q(f)."""
    starts_at_prior: bool = False
    """Whether runs of its optimizers may begin at the prior rather than at q."""

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] in GPflow's shapes: mean and variances [..., N, P]."""
        posterior = self.posterior(PrecomputeCacheType.NOCACHE)
        return posterior.fused_predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> BasisPosterior:
        """A posterior for fast predictions, with the present Parameters' factorisations.

        :param precompute_cache: "tensor", "variable" (can be exported, and updated in place), or
            "nocache".
        :return: an object with `predict_f`; its `update_cache()` factorises again.
        :raises UnknownOptionError: for another cache.
        """
        return BasisPosterior(
            self.kernel,
            self.basis,
            self.mean_function,
            precompute_cache=precompute_cache,
            num_dims=self.num_dims,
        )

    def moments(self, data: RegressionData | None = None) -> Moments:
        """Mean and variance of f under q at observations, [N, P] each.

        :param data: X [N, D] and Y [N, P]; None for those that the model owns.
        :raises DataError: for None where the model owns no data.

        Cost: a prediction. Example::

            mean, variance, _ = model.moments((X, Y))
        """
        return Moments(*self.predict_f(self._observations(data)[0]))

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        """E log p(y_n | f_n) [N] in nats, integrated as in the bound of this model.

        :param moments: of f at the observations, for example those of `moments`.
        :param data: X [N, D] and Y [N, P]; None for those that the model owns.
        :param doublings: how often the number of `resolution` is doubled.
        :raises DataError: for None where the model owns no data.

        Example::

            at = model.moments((X, Y))
            coarse, fine = (model.expected_log_densities(at, (X, Y), doublings=k) for k in (0, 1))
        """
        X, Y = self._observations(data)
        likelihood = finer(self.likelihood, doublings)
        return likelihood.variational_expectations(X, moments.mean, moments.variance, Y)

    @property
    def resolution(self) -> Resolution | None:
        """The number of nodes behind `expected_log_densities`; None for closed forms and draws.

        A likelihood may have nodes and not use them.
        """
        number = nodes_of(self.likelihood)
        return None if number is None else Resolution("nodes", number)

    def _observations(self, data: RegressionData | None) -> RegressionData:
        own = getattr(self, "data", None) if data is None else data
        if own is None:
            raise DataError(f"{type(self).__name__} owns no data: pass data=(X, Y).")
        return own
