"""GPflow's predictions with checked inputs."""

from __future__ import annotations

__all__ = ["CheckedPredictions"]

import abc
from contextlib import AbstractContextManager

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.models import GPModel

from ...covariances.indices import check_indices
from ...errors import DataError, naming_memory
from ...inputs import as_array, as_inputs, as_pair, check_whole, float_type, of_known_rank
from ...likelihoods import observation_moments
from ...likelihoods.log_densities import observation_log_density
from ...likelihoods.lookup import expected_log_densities
from ...likelihoods.nodes import finer, nodes_of
from ...summaries import model_line, short_table
from ..expectations import Moments, Resolution
from .data import as_observations


class CheckedPredictions(GPModel, abc.ABC):
    """A model whose `predict_*` refuse unusable inputs by a `DataError`."""

    starts_at_prior: bool = False
    """True if its optimizers may begin at the prior rather than at q."""

    @property
    @abc.abstractmethod
    def num_dims(self) -> int | None:
        """D, the columns of the inputs; None if any number will do."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Numbers of observations, or of points of each kind, by name."""
        return {"N": int(self.data[0].shape[0])}

    def __repr__(self) -> str:
        return model_line(self, **self.sizes)

    def _repr_html_(self) -> str:
        return short_table(super()._repr_html_())

    @property
    def float_type(self) -> tf.DType:
        """The dtype of the model's numbers."""
        return float_type(self.kernel)

    @abc.abstractmethod
    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Data X [N, D] and Y [N, P] as tensors, values checked where known."""

    def inputs(self, Xnew: object, name: str = "Xnew") -> tf.Tensor:
        """Inputs [..., N, D] as a tensor of the model's dtype; `DataError` for unusable ones."""
        X = as_inputs(Xnew, name, self.num_dims, self.float_type)
        check_indices(X, name, self.kernel, self.mean_function, self.likelihood)
        return X

    def enough_memory(self, Xnew: InputData, full_cov: bool) -> AbstractContextManager[None]:
        """Within it, a lack of memory for predictions is an error that says what to do."""
        fix = (
            "leave out full_cov, or pass fewer rows at once"
            if full_cov
            else "pass fewer rows at once, or take a model that needs less for so many data, as"
            " gpflow_decoupled.build(X, Y) does"
        )
        return naming_memory(
            lambda: f"predictions of {self!r} at Xnew of shape {np.shape(Xnew)}: {fix}"
        )

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draw f at Xnew [..., N, D]: [..., S, N, P], or [..., N, P] without `num_samples`."""
        if num_samples is not None and not tf.is_tensor(num_samples):
            check_whole(1, num_samples=num_samples)
        return super().predict_f_samples(self.inputs(Xnew), num_samples, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of observations at Xnew [..., N, D]: [..., N, P] each."""
        X = self.inputs(Xnew)
        if full_cov or full_output_cov:
            return super().predict_y(X, full_cov, full_output_cov)  # GPflow's refusal
        return observation_moments(self.likelihood, X, *self.predict_f(X))

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log predictive densities [..., N] in nats, at X [..., N, D] and Y [..., N, P]."""
        X, Y = self._held_out(data)
        if full_cov or full_output_cov:
            return super().predict_log_density((X, Y), full_cov, full_output_cov)
        mean, variance = self.predict_f(X)
        return observation_log_density(self.likelihood, X, mean, variance, Y)

    def _held_out(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        X, Y = of_known_rank(X, self.num_dims), of_known_rank(Y)
        if len(X.shape) == 2:
            self.inputs(X, "X")
            return self.checked((X, Y))
        return self.inputs(X, "X"), as_observations(Y, self.likelihood, self.float_type)

    def moments(self, data: RegressionData | None = None) -> Moments:
        """Mean and variance of f under q at observations, [N, P] each.

        :param data: X [N, D] and Y [N, P]; None for a model that owns its data.
        """
        return Moments(*self.predict_f(self._observations(data)[0]))

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        """E log p(y_n | f_n) [N] in nats, integrated as in the bound of this model.

        :param moments: of f at the observations, see `moments`.
        :param data: X [N, D] and Y [N, P]; None for a model that owns its data.
        :param doublings: how often the number of `resolution` is doubled.
        """
        X, Y = self._observations(data)
        likelihood = finer(self.likelihood, doublings)
        return expected_log_densities(likelihood, X, moments.mean, moments.variance, Y)

    @property
    def resolution(self) -> Resolution | None:
        """The number of nodes behind `expected_log_densities`; None for closed forms and draws."""
        number = nodes_of(self.likelihood)
        return None if number is None else Resolution("nodes", number)

    def _observations(self, data: RegressionData | None) -> RegressionData:
        own = getattr(self, "data", None) if data is None else data
        if own is None:
            raise DataError(f"{type(self).__name__} owns no data: pass data=(X, Y).")
        return own
