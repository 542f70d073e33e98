"""Full GPs that own their data."""

from __future__ import annotations

__all__ = ["FullGP"]

import abc

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood
from gpflow.models import InternalDataTrainingLossMixin

from ..bases import Basis, DualBasis, SiteBasis, StateSpaceBasis
from ..inputs import as_array, as_pair, as_values, float_type, of_known_rank
from ..likelihoods.labels import index_columns
from .basis_predictions import BasisPredictions
from .checks import (
    as_observations,
    check_kernel,
    check_mean_function,
    check_parts,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    refuse_gradient,
    refuse_replicas,
    refuse_variables,
    warn_of_values,
)
from .expectations import variational_expectations
from .neighbours.evidence import EvidenceOfOwnData


class FullGP(BasisPredictions, EvidenceOfOwnData, InternalDataTrainingLossMixin, abc.ABC):
    """A GP with a basis on all its data, which it owns; subclasses add `basis` and `elbo`.

    :param data: X [N, D], Y [N, P].
    :param kernel: any GPflow kernel.
    :param likelihood: any GPflow likelihood.
    :param mean_function: m_0(x) [N, P]; zero if not given.
    :param num_latent_gps: L; by default the likelihood's or the kernel's, else the columns of Y.

    Example::

        model: FullGP = CVIGP((X, Y), kernel, likelihood)
        mean, variance = model.predict_f(Xnew)
    """

    basis: Basis

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        refuse_replicas(type(self).__name__)
        check_parts(kernel, likelihood)
        refuse_variables(data, type(self))
        X, Y = self._as_arrays(data, float_type(kernel))
        if (
            num_latent_gps is None
            and likelihood.latent_dim is None
            and Y.ndim == 2
            and _plain(kernel)
        ):
            num_latent_gps = Y.shape[1] - index_columns(likelihood)
        latents = infer_num_latent_gps(kernel, likelihood, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, latents)
        X, Y = self._checked(X, Y)
        check_kernel(kernel, X.shape[1])
        warn_of_values(X, Y, likelihood)
        self.data = self._as_tensors(X, Y)
        check_mean_function(mean_function, X.shape[1], self._num_outputs)

    @abc.abstractmethod
    def elbo(self) -> tf.Tensor:
        """The evidence lower bound in nats, a scalar."""

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The bound: see `elbo`."""
        return self.elbo()

    def training_loss(self) -> tf.Tensor:
        """Minus the bound and the log prior of the hyperparameters, at fixed q, a scalar.

        :raises ModelError: in its gradient, while the q of a `CVIGP` or `LCLGP` is the prior: the
            minimum would be a kernel that has seen no data.
        """
        loss, basis = super().training_loss(), self.basis
        names = next((names for kind, names in _SITES.items() if isinstance(basis, kind)), ())
        if not names:
            return loss
        run = "LinearlyConstrainedLagrangian().run(model)"
        run = run if "alpha" in names else "ConjugateComputation().run(model)"
        return refuse_gradient(self, loss, lambda: [getattr(basis, name) for name in names], run)

    def variational_expectations(
        self, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
    ) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats; latent moments [N, L] without mean function."""
        return variational_expectations(self, mean, variance, data)

    @property
    def num_dims(self) -> int:
        return int(self.data[0].shape[1])

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Held-out X [N, D] and Y [N, P] as tensors, checked as the model's data."""
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        X, Y = of_known_rank(X, self.num_dims), of_known_rank(Y)
        return self._as_tensors(*self._checked(X, Y))

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        return self.as_tensors(data)

    @property
    def _num_outputs(self) -> int:
        return (
            int(self.kernel.W.shape[0])
            if isinstance(self.kernel, LinearCoregionalization)
            else self.num_latent_gps
        )

    def _as_arrays(self, data: RegressionData, dtype: tf.DType) -> list[np.ndarray]:
        return [as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY")]

    def _checked(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dims = int(self.data[0].shape[1]) if hasattr(self, "data") else None
        check_shapes_of_data(X, Y, self.likelihood, self._num_outputs, dims, self.float_type)
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)
        return X, Y

    def _as_tensors(self, X: np.ndarray, Y: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        X = tf.convert_to_tensor(X)
        return X, as_observations(Y, self.likelihood, X.dtype)


_SITES: dict[type, tuple[str, ...]] = {
    SiteBasis: ("nu", "tau"),
    StateSpaceBasis: ("nu", "tau"),
    DualBasis: ("alpha", "lam"),
}
"""Parameters that are zero while q is the prior."""


def _plain(kernel: Kernel) -> bool:
    return not hasattr(kernel, "latent_kernels")
