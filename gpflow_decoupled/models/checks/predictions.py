"""GPflow's predictions with inputs by the one rule of `inputs`: arrays, lists, data frames and
tensors alike.
"""

from __future__ import annotations

__all__ = ["CheckedPredictions"]

import abc

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.models import GPModel

from ...inputs import as_array, as_inputs, as_pair, check_whole, float_type
from ...likelihoods import observation_moments
from ...summaries import model_line, short_table
from .data import as_observations


class CheckedPredictions(GPModel, abc.ABC):
    """A model whose `predict_*` check their inputs, and refuse unusable ones with a `DataError`.

    Example::

        model.predict_y([[0.5], [1.5]])  # [2, P] each; one row per input
    """

    @property
    @abc.abstractmethod
    def num_dims(self) -> int | None:
        """D, the columns of the inputs; None if the model takes any number."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """How many observations the model owns, or points of each kind its basis has, by name."""
        return {"N": int(self.data[0].shape[0])}

    def __repr__(self) -> str:
        """One line: the class, kernel, likelihood, and sizes."""
        return model_line(self, **self.sizes)

    def _repr_html_(self) -> str:
        """GPflow's table of the Parameters for notebooks, of the first 20 where there are more."""
        return short_table(super()._repr_html_())

    @property
    def float_type(self) -> tf.DType:
        """The type of the model's numbers."""
        return float_type(self.kernel)

    @abc.abstractmethod
    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Data X [N, D] and Y [N, P] as tensors, with their values checked where they are known."""

    def inputs(self, Xnew: object, name: str = "Xnew") -> tf.Tensor:
        """Inputs [..., N, D] as a tensor of the model's type; raises `DataError` for unusable ones,
        called by their name.
        """
        return as_inputs(Xnew, name, self.num_dims, self.float_type)

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draws of f at Xnew [..., N, D]: [..., S, N, P], or [..., N, P] without `num_samples`."""
        if num_samples is not None and not tf.is_tensor(num_samples):
            check_whole(1, num_samples=num_samples)
        return super().predict_f_samples(self.inputs(Xnew), num_samples, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of observations at Xnew [..., N, D]: [..., N, P] each.

        :raises ModelError: for GPflow's `Ordinal`, whose moments are NaN.
        """
        X = self.inputs(Xnew)
        if full_cov or full_output_cov:
            return super().predict_y(X, full_cov, full_output_cov)  # GPflow's refusal
        return observation_moments(self.likelihood, X, *self.predict_f(X))

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log predictive densities [..., N] in nats, at X [..., N, D] and Y [..., N, P]."""
        return super().predict_log_density(self._held_out(data), full_cov, full_output_cov)

    def _held_out(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X and Y as tensors; their values are checked where there are no batch dimensions."""
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        if len(X.shape) == 2:
            self.inputs(X, "X")
            return self.checked((X, Y))
        return self.inputs(X, "X"), as_observations(Y, self.likelihood, self.float_type)
