"""The nearest-neighbour GP of Gaussian noise."""

from __future__ import annotations

__all__ = ["GaussianNNGP", "NNGP"]

import abc
import functools
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import InternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import positive

from ...errors import DataError, check_option, check_parameters, not_a_number
from ...inputs import as_array, as_pair, check_whole, float_type
from ...interrupts import all_or_nothing, one_at_a_time
from ...likelihoods.facts import is_gaussian, name_of
from ...likelihoods.registry import index_columns
from ...likelihoods.row_likelihood import with_gaps
from ...linalg.neighbours import log_densities
from ...replicas import Group as Workers
from ..checks import (
    CheckedPredictions,
    MonteCarlo,
    as_observations,
    check_kernel,
    check_mean_function,
    check_parts,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    refuse_replicas,
    refuse_variables,
    warn_of_values,
)
from .conditionals import LocalSpread
from .evidence import EvidenceOfOwnData, observed_parts
from .groups import (
    EarlierNeighbours,
    Group,
    add_noise_rows,
    appended_order,
    arrays_of,
    by_noise,
    check_neighbours_kernel,
    check_new,
    check_noise,
    check_rows,
    find_neighbours,
    jitter_variances,
    most_neighbours,
    noise_at_floor,
    noise_of_new,
    noise_variances,
    random_order,
    refuse_spread_of_sites,
    telling_groups,
    warn_at_floor,
)
from .likelihood import LeaveOneOut, left_out, moments_of_rows, with_copies
from .mean_of_rows import MEANS, MeanOfRows
from .posterior import NeighboursPosterior

# ---
# The nearest-neighbour GP, and the members of all kinds.


AUTO = "auto"


class NNGP(CheckedPredictions, InternalDataTrainingLossMixin):
    """A nearest-neighbour GP (Vecchia 1988) for any likelihood, which owns its data.

    Every observation and every prediction is conditioned on its nearest neighbours. A call makes a
    `GaussianNNGP`, exact given the neighbours; for classes a `LabelNNGP`, by least squares and
    left-out labels; else a `SiteNNGP`, by sites (Khan & Lin 2017).

    :param data: X [N, D], Y [N, P]; NaN in Y marks missing entries, which are left out, where each
        output has a latent of its own.
    :param kernel: a kernel for all latents, or `SeparateIndependent` with one for each.
    :param likelihood: Gaussian noise if not given.
    :param num_neighbours: m of the likelihood and of sites.
    :param prediction_neighbours: m of predictions and of `leave_one_out`; by default the same. With
        "auto" `fit` ends by doubling it, up to 256, or halving a larger one, by leave-one-out.
    :param spread_neighbours: k, for Gaussian noise: scale variances by the mean squared error of
        the k nearest observations; `build` takes 64. None: the GP's variances.
    :param mean: "neighbours", or "data": the predictive mean uses all rows, for smooth functions
        under large noise. `solve_mean` finds it at the first prediction after a change, at
        N^2 (D + L) a product.
    :param mean_function: m_0(x) [N, L], trained too; zero if not given.
    :param num_latent_gps: L; by default the likelihood's or the kernel's, else the columns of Y.
    :param expectations: of sites alone: a `MonteCarlo` moves them by draws.
    :param seed: of the random order of the rows.
    :raises DataError: also for kernels that mix latent functions, and `expectations` without sites.

    Neighbours are distinct inputs, each with all of its rows, nearest in inputs divided by
    lengthscales for GPflow's isotropic kernels, else by prior correlation. Cost:
    N L (m^3 / 3 + m^2 D) for the likelihood or a pass over the sites, m^3 / 3 + m^2 D for a
    prediction and latent. With Gaussian noise `predict_y`, `predict_log_density` and `update` take
    `noise_variance=` of each new row, and there are `evidence`, `solve_mean`, `noise_at_floor` and
    `neighbours_of`. Example::

        kernel = gpflow.kernels.Matern52(lengthscales=np.ones(8))
        model = NNGP((X, Y), kernel, gpflow.likelihoods.Poisson(), num_neighbours=40)
        gpflow_decoupled.fit(model)
        rate, _ = model.predict_y(Xnew)
    """

    of_gaussian_noise: ClassVar[bool]
    """True for the class that `NNGP` makes for Gaussian noise."""
    data: tuple[tf.Tensor, tf.Tensor]
    expectations: MonteCarlo | None = None
    # of the data or of settings, and no values of Parameters: `multiple_assign` and `print_summary`
    # leave them alone, and copies, checkpoints and exports take them along
    _TF_MODULE_IGNORED_PROPERTIES = CheckedPredictions._TF_MODULE_IGNORED_PROPERTIES | {
        "_predicting", "_order", "_earlier",
    }  # fmt: skip

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood | None = None,
        *,
        num_neighbours: int,
        prediction_neighbours: int | str | None = None,
        spread_neighbours: int | None = None,
        mean: str = "neighbours",
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        expectations: MonteCarlo | None = None,
        seed: int = 0,
    ) -> None:
        check_option("mean", mean, MEANS)
        if not self.of_gaussian_noise:
            refuse_replicas(type(self).__name__)
            refuse_spread_of_sites(spread_neighbours, likelihood)
        if expectations is not None:
            self.check_expectations(likelihood)
        likelihood = Gaussian() if likelihood is None else likelihood
        check_parts(kernel, likelihood)
        check_neighbours_kernel(kernel)
        check_whole(1, num_neighbours=num_neighbours)
        check_whole(0, seed=seed)
        chooses = prediction_neighbours == AUTO
        # until `fit` has chosen, predictions use as many as the likelihood
        predicting = prediction_neighbours
        if prediction_neighbours is None or chooses:
            predicting = num_neighbours
        check_whole(1, prediction_neighbours=predicting)
        if spread_neighbours is not None:
            check_whole(1, spread_neighbours=spread_neighbours)
        refuse_variables(data, NNGP)
        X, Y = arrays_of(data, float_type(kernel))
        if not self.of_gaussian_noise:
            likelihood = with_gaps(likelihood, Y)
        latents = num_latent_gps
        if latents is None and likelihood.latent_dim is None and Y.ndim == 2:
            if not isinstance(kernel, MultioutputKernel):
                latents = Y.shape[1] - index_columns(likelihood)
        latents = infer_num_latent_gps(kernel, likelihood, latents)
        super().__init__(kernel, likelihood, mean_function, latents)
        self.check_rows(X, Y, None)
        check_kernel(kernel, X.shape[1])
        check_mean_function(mean_function, X.shape[1], latents)
        warn_of_values(X, Y, likelihood)
        self.num_neighbours = num_neighbours
        with tf.init_scope():  # a number where a function is traced, too
            # a variable, so that checkpoints have the number that `fit` chose
            self._predicting = tf.Variable(cast(int, predicting), trainable=False, dtype=tf.int64)
        self.chooses_neighbours = chooses
        """Whether `fit` chooses `prediction_neighbours`."""
        self.mean, self.spread_neighbours = mean, spread_neighbours
        self.expectations = expectations
        self.data = tf.convert_to_tensor(X), as_observations(Y, likelihood, self.float_type)

    # `wraps` shows the constructor's signature; copies and files call this without arguments
    @functools.wraps(__init__, assigned=(), updated=())  # type: ignore[misc]
    def __new__(cls, *arguments: object, **options: object) -> NNGP:
        """Make an object of the class for the likelihood."""
        if cls is NNGP:
            likelihood = arguments[2] if len(arguments) > 2 else options.get("likelihood")
            cls = next(one for one in _kinds(cls) if one.serves(likelihood))
        return super().__new__(cls)

    @classmethod
    def serves(cls, likelihood: Likelihood | None) -> bool:
        """True if `NNGP` makes this class for a likelihood."""
        return False

    @classmethod
    def check_expectations(cls, likelihood: Likelihood | None) -> None:
        """Raise `DataError` where expectations cannot be estimated by draws."""
        name = name_of(Gaussian() if likelihood is None else likelihood)
        raise DataError(
            f"expectations=MonteCarlo(...) is for sites, and the NNGP of {name} has none: leave it"
            " out, or make a models.neighbours.SiteNNGP."
        )

    @property
    def prediction_neighbours(self) -> int:
        """m of predictions and of `leave_one_out`."""
        with tf.init_scope():
            return int(self._predicting.numpy())

    @prediction_neighbours.setter
    def prediction_neighbours(self, count: int) -> None:
        self._predicting.assign(count)

    @property
    def num_dims(self) -> int:
        return int(self.data[0].shape[1])

    @property
    def sizes(self) -> dict[str, int | str]:
        return {
            "N": int(self.data[0].shape[0]),
            "num_neighbours": self.num_neighbours,
            "prediction_neighbours": self.prediction_neighbours,
        }

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        check_shapes_of_data(
            X, Y, self.likelihood, self.num_latent_gps, self.num_dims, self.float_type
        )
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)
        return tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)

    as_tensors = checked
    """Held-out data have values, so the checks are the same."""

    def check_rows(self, X: np.ndarray, Y: np.ndarray, dims: int | None) -> None:
        """Refuse unusable rows X [N, D] and Y [N, P] of the data; raises `DataError`.

        :param dims: D of the data; None for the first ones.
        """
        check_new(self, X, Y, dims)

    @abc.abstractmethod
    def leave_one_out(
        self,
        rows: np.ndarray | None = None,
        *,
        num_neighbours: int | None = None,
        mean: str = "neighbours",
    ) -> LeaveOneOut:
        """Predict observed rows, each from its nearest other rows.

        :param rows: row numbers [B]; all rows if not given.
        :param num_neighbours: m; by default the predictions'.
        :param mean: "data" for the mean given all other rows, exactly: N^3 / 3 up to 2,000 rows,
            else some thirty products of N^2 (D + B). Variances are those of neighbours.
        :return: moments [B, P] of the observations and log densities [B].
        """

    @abc.abstractmethod
    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> NeighboursPosterior:
        """A posterior for many predictions, which keeps the index of the rows.

        :param precompute_cache: "tensor", "variable" (can be exported, and updated in place), or
            "nocache".
        :return: an object with `predict_f`; its `update_cache()` reads the Parameters again.
        """

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] in GPflow's shapes.

        With `full_cov` all inputs share the union of their neighbours.
        """
        with self.enough_memory(Xnew, full_cov):
            posterior = self.posterior(PrecomputeCacheType.NOCACHE)
            moments = posterior.fused_predict_f(Xnew, full_cov, full_output_cov)
        if tf.executing_eagerly() and any(np.any(np.isnan(part)) for part in moments):
            raise not_a_number(self, "posterior of f at Xnew")
        return moments

    @abc.abstractmethod
    def update(self, new_data: RegressionData) -> object:
        """Add observations X [N*, D] and Y [N*, P]; raises `DataError` with nothing changed.

        Where sites are found, a record of them is returned.
        """


def _kinds(cls: type[NNGP]) -> Iterator[type[NNGP]]:
    for one in cls.__subclasses__():
        yield one
        yield from _kinds(one)


# ---


class GaussianNNGP(EarlierNeighbours, MeanOfRows, EvidenceOfOwnData, NNGP):
    """An `NNGP` for Gaussian noise: exact given the neighbours.

    In some order, each observation is given only its m nearest earlier ones:

        log p(y) ~ sum_i log N(y_i; b_i^T y_c, tau_i)
        b_i = K^_cc^-1 K^_ci,   tau_i = K^_ii - K^_ic b_i

    Exact for m = N - 1, but *not* a bound. Predictions condition f on the nearest of all
    observations; their variance is never below the exact GP's.

    Parameters as in `NNGP`. Noise may be a function of the inputs, or an array [N, 1]; 1e-6 of the
    prior variance (1e-4 in single precision) is added: `noise_at_floor` says where that matters.

    `training_loss` keeps the neighbours of its first call until `refresh_neighbours`. Cost: as
    `NNGP`, and the search: N D a row, or some m log N by a tree in up to eight columns. Example::

        kernel = gpflow.kernels.Matern52(lengthscales=np.ones(8))
        model = NNGP((X, Y), kernel, num_neighbours=50)
        for _ in range(2):
            model.refresh_neighbours()
            gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        mean, variance = model.predict_y(Xnew)
    """

    of_gaussian_noise: ClassVar[bool] = True
    route: ClassVar[str] = "neighbours"
    """Of `fit`."""
    jitter_is_noise: ClassVar[bool] = True
    """Of `evidence`."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Gaussian | None = None,
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(data, kernel, likelihood, seed=seed, **options)
        check_noise(self.likelihood, *self.data)
        workers = Workers(tf.distribute.get_strategy())
        workers.refuse_unlike({"the number of rows": int(self.data[0].shape[0])})
        # a variable, so that copies, checkpoints and exports have the same order
        self._order = tf.Variable(random_order(int(self.data[0].shape[0]), seed), trainable=False)
        if self.spread_neighbours is not None:
            self.spread_factor, self.spread_prior = (
                gpflow.Parameter(1.0, transform=positive(), trainable=False) for _ in range(2)
            )

    @classmethod
    def serves(cls, likelihood: Likelihood | None) -> bool:
        """True for Gaussian noise, the default."""
        return likelihood is None or is_gaussian(likelihood)

    @property
    def order(self) -> np.ndarray:
        """The random order, row numbers [N]."""
        return self._order.numpy()

    @property
    def of_rows(self) -> GaussianNNGP:
        return self

    @property
    def groups(self) -> list[Group]:
        """The outputs in groups that share kernel, observed rows, and so neighbours."""
        groups = telling_groups(self.kernel, self.likelihood, *self.data)
        return with_copies(groups, self.data[0])

    @property
    def matrices(self) -> list[Group]:
        """The outputs in groups that share a covariance matrix: `groups`, by noise."""
        return by_noise(self.groups, self.likelihood, self.data[0])

    def neighbours_of(
        self, rows: np.ndarray, *, before: bool = True, num_neighbours: int | None = None
    ) -> tf.Tensor:
        """Find the nearest rows of the data to some of its rows, at the present kernel.

        :param rows: row numbers [B].
        :param before: search earlier rows of the order, for the likelihood; False all others, for
            leave-one-out.
        :param num_neighbours: m; by default the likelihood's or the predictions'.
        :return: row numbers [G, B, m], int32, for each of the `groups`, one for each distinct
            input; -1 for none. Not inside `tf.function`. Cost: B N D, or B m log N by a tree.
        """
        if num_neighbours is None:
            num_neighbours = self.num_neighbours if before else self.prediction_neighbours
        check_whole(1, num_neighbours=num_neighbours)
        count = min(num_neighbours, most_neighbours(self.groups, self.data[0], before))
        rows = check_rows(rows, int(self.data[0].shape[0]))
        return tf.constant(
            find_neighbours(self.groups, self.data[0], self._order.numpy(), rows, count, before)
        )

    def log_likelihood(self, rows: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
        """Terms of the likelihood for some rows: a pure function of the Parameters.

        Summed over B random rows, times N / B, an unbiased estimate. Rows with the same input share
        its term. Compile it once, for tensors.

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`.
        :return: [B], in nats, summed over the observed outputs.

        Example::

            rows = np.random.default_rng(0).choice(N, 2000, replace=False)
            neighbours = model.neighbours_of(rows)
            loss = -tf.reduce_sum(model.log_likelihood(rows, neighbours))
        """
        rows = tf.cast(tf.convert_to_tensor(rows), tf.int32)
        residual, mean, variance, _, count, own = moments_of_rows(
            self.groups, self.data, (self.mean_function, self.likelihood), rows, neighbours
        )
        there = tf.math.is_finite(residual)
        # the branch that is not taken must be finite too, or its gradient is NaN
        terms = log_densities(tf.where(there, residual, mean), mean, variance) / count + own
        return tf.reduce_sum(tf.where(there, terms, tf.zeros_like(terms)), axis=1)

    def exact_log_likelihood(self, rows: np.ndarray) -> tf.Tensor:
        """The log density of some rows alone, without neighbours.

        A few hundred random rows tell which inputs matter.

        :param rows: row numbers [B].
        :return: nats, a scalar. Cost: B^3 / 3, and twice that for a gradient. XLA refuses it.

        Example::

            print(model.exact_log_likelihood(np.arange(500)))
        """
        rows = check_rows(rows, int(self.data[0].shape[0]))
        parts = observed_parts(self, self.data, self.matrices, rows)
        # add_n takes no empty list, which rows without any observed output give
        return tf.add_n([tf.zeros([], self.data[1].dtype), *(part.log_density() for part in parts)])

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The log likelihood of neighbours (N2) in nats, a scalar; not a bound of the evidence.

        Neighbours are searched at the first call, and after `update` for the new rows.
        """
        # the search is NumPy, and must not become a part of the graph that asks for the bound
        with tf.init_scope():
            earlier = self.earlier_neighbours()
        rows = tf.range(int(self.data[0].shape[0]))
        return tf.reduce_sum(self.log_likelihood(rows, tf.convert_to_tensor(earlier)))

    def leave_one_out(
        self,
        rows: np.ndarray | None = None,
        *,
        num_neighbours: int | None = None,
        mean: str = "neighbours",
    ) -> LeaveOneOut:
        """Predict observed rows, each from its nearest other rows; arguments as `NNGP`'s.

        Use it to compare kernels and means; as an objective it learns worse hyperparameters.

        :return: moments [B, P] of the observations and log densities [B].

        Warns where the noise variance is at its floor. Cost: B (m^3 / 3 + m^2 D) and the search.
        Example::

            rows = np.random.default_rng(1).choice(N, 1000, replace=False)
            print(model.leave_one_out(rows).log_density.mean())
        """
        check_option("mean", mean, MEANS)
        N = int(self.data[0].shape[0])
        rows = np.arange(N) if rows is None else check_rows(rows, N)
        check_parameters(self, "prediction of rows that are left out")
        warn_at_floor(self.noise_at_floor())
        neighbours = self.neighbours_of(rows, before=False, num_neighbours=num_neighbours)
        parts = self.mean_function, self.likelihood
        found = left_out(self.groups, self.data, parts, rows, neighbours, self._spread)
        if mean == "neighbours":
            return found
        means = self.mean_without(tf.constant(rows)).numpy()
        Y = tf.gather(self.data[1], rows).numpy()
        terms = np.where(np.isnan(Y), 0.0, log_densities(Y, means, found.variance))
        return LeaveOneOut(means, found.variance, np.sum(terms, axis=1), found.spread)

    def noise_at_floor(self) -> np.ndarray:
        """Tell which outputs' mean noise is at its floor, [P] bool.

        The floor is 1e-6 of the prior variance (1e-4 in single precision), or the likelihood's
        lower bound if larger.
        """
        return noise_at_floor(self.groups, self.likelihood, self.data[0])

    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise_variance: TensorType | None = None,
    ) -> MeanAndVariance:
        """Predict observations at Xnew [..., N, D]: mean, variance [..., N, P].

        :param noise_variance: of the new rows [..., N, 1] or [..., N, P], if each row has its own.
        :raises DataError: where it is needed and not given, or the other way round.
        """
        X = self.inputs(Xnew)
        if full_cov or full_output_cov:
            return super().predict_y(X, full_cov, full_output_cov)  # GPflow's refusal
        noise = noise_of_new(self.likelihood, X, noise_variance)
        noise += jitter_variances(self.groups, X)
        with self.enough_memory(X, full_cov):
            posterior = self.posterior(PrecomputeCacheType.NOCACHE)
            mean, variance, spread = posterior.fused_with_spread(X)
        return mean, variance + noise * spread

    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise_variance: TensorType | None = None,
    ) -> tf.Tensor:
        """Log predictive densities [..., N] in nats, at X [..., N, D] and Y [..., N, P].

        :param noise_variance: as in `predict_y`.
        """
        if full_cov or full_output_cov:
            return super().predict_log_density(data, full_cov, full_output_cov)
        X, Y = self._held_out(data)
        moments = self.predict_y(X, noise_variance=noise_variance)
        return tf.reduce_sum(log_densities(Y, *moments), axis=-1)

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> NeighboursPosterior:
        return NeighboursPosterior(
            self.kernel,
            self.likelihood,
            self.data,
            self.prediction_neighbours,
            self.mean_function,
            self.mean_coefficients if self.mean == "data" else None,
            self,
            precompute_cache=precompute_cache,
            spread=self._spread,
        )

    @one_at_a_time
    def update(self, new_data: RegressionData, *, noise_variance: TensorType | None = None) -> None:
        """Add observations, last in the order: the old ones keep their neighbours.

        :param new_data: X [N*, D] and Y [N*, P].
        :param noise_variance: of the new rows [N*, 1] or [N*, P], if each row has its own.

        Functions compiled before must be compiled again. Example::

            model.update((X_new, Y_new))
            mean, variance = model.predict_y(Xnew)
        """
        X, Y = arrays_of(new_data, self.float_type)
        self.check_rows(X, Y, self.num_dims)
        parts = (X, tf.cast(Y, self.float_type))
        data = tuple(tf.concat(pair, axis=0) for pair in zip(self.data, parts))
        order = tf.Variable(appended_order(self._order.numpy(), len(X)), trainable=False)
        with all_or_nothing([], [self.likelihood, self]):
            add_noise_rows(self.likelihood, noise_variance, len(X))
            self.data, self._order = data, order

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Held-out data for scores, which need the noise of new inputs; see `checked`."""
        X, Y = self.checked(data)
        noise_variances(self.likelihood, X[:1], None)
        return X, Y

    @property
    def _spread(self) -> LocalSpread | None:
        """Of predictions, not of the likelihood."""
        if self.spread_neighbours is None:
            return None
        return LocalSpread(self.spread_neighbours, self.spread_factor, self.spread_prior)
