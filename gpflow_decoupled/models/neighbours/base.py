"""The nearest-neighbour GP, and the members of all kinds."""

from __future__ import annotations

__all__ = ["NNGP"]

import abc
import functools
from collections.abc import Iterator
from typing import ClassVar, cast

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import InternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType

from ...errors import DataError, check_option, not_a_number
from ...inputs import as_array, as_pair, check_whole, float_type
from ...likelihoods.labels import index_columns
from ...likelihoods.row_likelihood import with_gaps
from ..checks import (
    CheckedPredictions,
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
from ..monte_carlo import MonteCarlo
from .likelihood import LeaveOneOut
from .mean_of_rows import MEANS
from .posterior import NeighboursPosterior
from .row_checks import (
    arrays_of,
    check_neighbours_kernel,
    check_new,
    refuse_spread_of_sites,
)

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
        name = type(Gaussian() if likelihood is None else likelihood).__name__
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
