"""A GPflow model of a basis."""

from __future__ import annotations

__all__ = ["BasisGP", "BasisPredictions"]

import abc
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, Parameter, RegressionData, TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood
from gpflow.models import ExternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import parameter_dict

from .. import replicas
from ..bases import Basis, InducingBasis
from ..bases.base import EAGER_ROWS, Features, State
from ..errors import DataError, ModelError, not_a_number
from ..inducing.variables import check_indices_of, input_dims
from ..inputs import as_array, as_pair, of_known_rank
from ..interrupts import one_at_a_time
from ..likelihoods.parameters import single_noise_variance
from ..posteriors import BasisPosterior
from ..user_warnings import warn_user
from .checks import (
    CheckedPredictions,
    MonteCarlo,
    Resolution,
    as_observations,
    check_draws,
    check_kernel,
    check_mean_function,
    check_num_data,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    sampled_expectations,
    variational_expectations,
    warn_of_values,
)
from .evidence import Evidence, EvidenceSettings
from .neighbours.evidence import evidence_of
from .residual_bound import (
    check_bound,
    gains_are_constant,
    left_variances,
    row_gains,
    shrunk_expectations,
)
from .stream_posterior import StreamMemory
from .streams import StreamUpdate, remember, update

# ---
# Predictions of a basis.


class BasisPredictions(CheckedPredictions, abc.ABC):
    """A model with a `basis`, which predicts by a `BasisPosterior`."""

    basis: Basis
    """The parametrisation of q(f)."""

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] in GPflow's shapes: mean and variances [..., N, P]."""
        with self.enough_memory(Xnew, full_cov):
            posterior = self.posterior(PrecomputeCacheType.NOCACHE)
            moments = posterior.fused_predict_f(Xnew, full_cov, full_output_cov)
        if tf.executing_eagerly() and any(np.any(np.isnan(part)) for part in moments):
            raise not_a_number(self, "posterior of f at Xnew")
        return moments

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> BasisPosterior:
        """A posterior for fast predictions, with the present Parameters' factorisations.

        :param precompute_cache: "tensor", "variable" (can be exported, and updated in place by
            `update_cache()`), or "nocache".
        """
        return BasisPosterior(
            self.kernel,
            self.basis,
            self.mean_function,
            precompute_cache=precompute_cache,
            num_dims=self.num_dims,
        )


# ---
# The model.


class BasisGP(BasisPredictions, ExternalDataTrainingLossMixin):
    """A sparse GP whose q(f) is any basis on inducing points.

    Data are passed to the methods, as to `gpflow.models.SVGP`: X [N, D] and Y [N, P].

    :param kernel: any GPflow kernel.
    :param likelihood: any GPflow likelihood.
    :param basis: an `InducingBasis`, with as many latents as kernel and likelihood.
    :param mean_function: m(x) [N, P], added to the outputs; zero if not given.
    :param num_data: N of the whole data set; `fit` sets it.
    :param expectations: a `MonteCarlo` estimates the data term from draws.
    :param bound: "classical", or "tight" (Titsias 2025), never lower, for log-concave likelihoods.

    Example::

        basis = OrthogonalBasis(gamma, beta)
        model = BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), basis)
        result = gpflow_decoupled.fit(model, (X, Y))
        mean, variance = model.predict_y(Xnew)
    """

    memory: StreamMemory | None = None
    """The likelihood factor of earlier updates' data; None forgets them (train q anew)."""

    route: ClassVar[str] = "inducing"
    """The name of the route by which `fit` trains it."""

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        basis: InducingBasis,
        *,
        mean_function: MeanFunction | None = None,
        num_data: int | None = None,
        expectations: MonteCarlo | None = None,
        bound: str = "classical",
    ) -> None:
        if not isinstance(basis, InducingBasis):
            raise DataError(
                f"basis is a {type(basis).__name__}; a BasisGP needs one on inducing variables:"
                " derive it from bases.InducingBasis and set its beta, or use CVIGP, LCLGP or"
                " AffineIndependentGP for the bases on all data."
            )
        if expectations is not None:
            check_draws(likelihood)
        infer_num_latent_gps(kernel, likelihood, basis.num_latent_gps)
        check_num_data(num_data)
        check_kernel(kernel, input_dims(basis.beta))
        for part in basis.submodules:
            if isinstance(part, InducingVariables):
                check_indices_of(part, "inducing points", kernel)
        if bound != "classical":
            constant = gains_are_constant(kernel, likelihood)
            check_bound(bound, likelihood, basis, expectations is not None and not constant)
        super().__init__(kernel, likelihood, mean_function, basis.num_latent_gps)
        self.basis = basis
        self.num_data = num_data
        self.expectations = expectations
        self.bound = bound
        check_mean_function(mean_function, self.num_dims, self.num_outputs)
        basis.refresh(kernel)

    @one_at_a_time
    def update(
        self,
        data: RegressionData,
        *,
        beta: InducingVariables | TensorType | None = None,
        gamma: InducingVariables | TensorType | None = None,
        learn: int = 0,
        keep: float = 1.0,
        steps: int = 100,
        tolerance: float = 1e-6,
    ) -> StreamUpdate:
        """Update q by a batch X [N, D], Y [N, P] of a stream, without old data.

        See `models.streams.update` for options, errors and cost.
        """
        return update(
            self,
            data,
            beta=beta,
            gamma=gamma,
            learn=learn,
            keep=keep,
            steps=steps,
            tolerance=tolerance,
        )

    def remember(self, data: RegressionData) -> StreamMemory:
        """Store the likelihood factor of q's data X [N, D], Y [N, P]; see `models.streams`."""
        return remember(self, data)

    @property
    def sizes(self) -> dict[str, int | str]:
        return self.basis.sizes

    @property
    def inducing_variable(self) -> InducingVariables:
        """The inducing variable beta, by its name in `gpflow.models.SVGP`."""
        return self.basis.beta

    @property
    def q_mu(self) -> Parameter:
        """The Parameter [M, L] of q(u)'s mean, if any."""
        return self._parameter("q_mu")

    @property
    def q_sqrt(self) -> Parameter:
        """The Parameter [L, M, M] of the root of q(u)'s covariance, if any."""
        return self._parameter("q_sqrt")

    def _parameter(self, name: str) -> Parameter:
        found = getattr(self.basis, name, None)
        if isinstance(found, Parameter):
            return found
        others = ", ".join(sorted(parameter_dict(self.basis)))
        raise AttributeError(
            f"{type(self.basis).__name__} has no {name}; the Parameters of model.basis are"
            f" {others}."
        )

    @property
    def num_outputs(self) -> int:
        """P, the number of columns of predictions."""
        return (
            int(self.kernel.W.shape[0])
            if isinstance(self.kernel, LinearCoregionalization)
            else self.num_latent_gps
        )

    @property
    def num_dims(self) -> int | None:
        return input_dims(self.basis.beta)

    def prior_kl(self) -> tf.Tensor:
        """The divergence KL[q(f) || p(f)] in nats, a scalar."""
        return self.basis.prior_kl(self.basis.factor(self.kernel))

    def scale(self, X: tf.Tensor) -> tf.Tensor:
        """num_data / batch size, the data term's factor; without `num_data` 1 and a warning.

        On several replicas X [N, D] is this one's share of the batch.
        """
        dtype = X.dtype
        if self.num_data is None:
            warn_user(
                "num_data is not set: the data passed are taken as the whole data set.",
            )
            return tf.ones([], dtype)
        check_num_data(self.num_data)
        (rows,) = replicas.total([tf.cast(tf.shape(X)[0], dtype)])
        return tf.cast(self.num_data, dtype) / rows

    def variational_expectations(
        self,
        mean: tf.Tensor,
        variance: tf.Tensor,
        data: RegressionData,
        left: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats, from means (less the mean function) and variances [N,
        L].

        With `expectations` an unbiased estimate, from new draws. For bound="tight" see
        `residual_bound`. X is [N, D], Y [N, P].

        :param left: `left_variances`, if known; else computed where needed, N M^2.
        """

        def expected(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
            if self.expectations is None:
                return variational_expectations(self, mean, variance, data)
            draws = self.expectations.draw(mean)
            return sampled_expectations(self, mean, variance, data, draws)

        if self.bound == "classical":
            return expected(mean, variance)
        if gains_are_constant(self.kernel, self.likelihood):
            return expected(mean, variance) + self.row_gains(data[0], left)
        left = left_variances(self.kernel, self.basis, data[0]) if left is None else left
        return shrunk_expectations(expected, mean, variance, tf.cast(left, variance.dtype))

    def left_variances(
        self, features: Features, X: tf.Tensor, tangent: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        """The variances [N, L] that the points leave at X [N, D]; None for the classical bound.

        :param features: of the basis at X.
        :param tangent: of the basis's state, if the features' is stopped.
        """
        if self.bound == "classical":
            return None
        return left_variances(self.kernel, self.basis, X, features, tangent)

    def row_gains(self, X: tf.Tensor, left: tf.Tensor | None = None) -> tf.Tensor:
        """Gain [N] in nats of bound="tight" per row X [N, D], for Gaussian noise of one variance;
        else zeros. `left` as in `variational_expectations`.
        """
        noise = single_noise_variance(self.likelihood)
        if self.bound == "classical" or noise is None:
            return tf.zeros(tf.shape(X)[:1], X.dtype)
        left = left_variances(self.kernel, self.basis, X) if left is None else left
        return row_gains(left, noise, self.num_latent_gps)

    @property
    def resolution(self) -> Resolution | None:
        return super().resolution if self.expectations is None else None

    def expectations_at(self, state: State, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats, for a state of the basis, X [N, D] and Y [N, P]."""
        if self.bound == "classical":
            mean, variance = self.basis.marginals(state, self.kernel, X)
            return self.variational_expectations(mean, variance, (X, Y))
        if tf.executing_eagerly() and X.shape[0] > EAGER_ROWS:
            starts = range(0, X.shape[0], EAGER_ROWS)
            blocks = [(X[i : i + EAGER_ROWS], Y[i : i + EAGER_ROWS]) for i in starts]
            return tf.concat([self.expectations_at(state, *block) for block in blocks], axis=0)
        features = self.basis.features(state, self.kernel, X)
        variance = self.basis.variance(features, self.kernel, X)
        left = self.left_variances(features, X)
        return self.variational_expectations(features.mean, variance, (X, Y), left)

    @tf.autograph.experimental.do_not_convert
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """The ELBO of the whole data set in nats, a scalar; cost as the basis.

        :param data: X [N, D] and Y [N, P]: all data, or a minibatch for an estimate.
        :raises ModelError: on several replicas of `tf.distribute`.
        """
        if replicas.count() > 1:
            raise ModelError(
                f"The bound is not added up over the {replicas.count()} replicas of strategy.run:"
                " train by gpflow_decoupled.fit(model, data, strategy=strategy), and evaluate the"
                " bound outside of strategy.run."
            )
        X, Y = self.checked(data)
        state = self.basis.factor(self.kernel)
        expectations = self.expectations_at(state, X, Y)
        return self.scale(X) * tf.reduce_sum(expectations) - self.basis.prior_kl(state)

    def evidence(
        self,
        data: RegressionData,
        *,
        num_neighbours: int = 100,
        tolerance: float = 0.1,
        probes: int = 0,
        seed: int = 0,
    ) -> Evidence:
        """Bound the log evidence log p(Y) at the present kernel, noise and mean function.

        For Gaussian noise; q(f) does not matter. Options, errors and cost as in `CVIGP.evidence`.

        :param data: X [N, D] and Y [N, P], all of them.

        Example::

            print(model.evidence((X, Y)))
        """
        settings = EvidenceSettings(num_neighbours, tolerance, probes, seed)
        return evidence_of(self, self.checked(data), settings)

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """The bound: see `elbo`."""
        return self.elbo(data)

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Data as tensors X [N, D], Y [N, P], shapes checked; Y is integer for `Softmax`."""
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        X, Y = of_known_rank(X, self.num_dims), of_known_rank(Y)
        check_shapes_of_data(
            X, Y, self.likelihood, self.num_outputs, self.num_dims, self.float_type
        )
        X, Y = tf.convert_to_tensor(X), tf.convert_to_tensor(Y)
        return X, as_observations(Y, self.likelihood, X.dtype)

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = self.as_tensors(data)
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)
        return X, Y

    @tf.autograph.experimental.do_not_convert
    def training_loss(self, data: RegressionData) -> tf.Tensor:
        """Minus bound and log prior of hyperparameters, a scalar; data and errors as `elbo`."""
        return super().training_loss(self.checked(data))

    def training_loss_closure(
        self, data: RegressionData | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """The training loss as a function without arguments, for GPflow's optimizers.

        :param data: X [N, D] and Y [N, P], checked here, once; or an iterator of minibatches.
        :param compile: wrap the function in `tf.function`.
        """
        if isinstance(data, (tuple, list)):
            data = self.checked(data)
            warn_of_values(*data, self.likelihood)
        elif self.num_data is None:
            raise DataError(
                "Minibatches need the size of the whole data set: pass num_data=N to the model."
            )
        return super().training_loss_closure(data, compile=compile)
