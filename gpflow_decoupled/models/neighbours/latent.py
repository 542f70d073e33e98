"""Any likelihood: f is predicted from rows at which it is observed with Gaussian noise."""

from __future__ import annotations

__all__ = ["LatentNNGP"]

import abc

import numpy as np
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from ...errors import check_option, not_a_number
from ...likelihoods import observation_moments
from ...likelihoods.log_densities import observation_log_density
from ...linalg.blocks import map_rows
from ..checks import check_values
from ..expectations import Moments
from .base import NNGP
from .conditionals import new_given_neighbours
from .copies import inputs_at
from .factors import Factors, scaled
from .gaussian import GaussianNNGP
from .label_densities import log_densities_of_labels
from .likelihood import LeaveOneOut
from .mean_of_rows import MEANS, MeanOfRows
from .observed import mean_values
from .posterior import NeighboursPosterior
from .row_checks import check_rows

_ENTRIES = 4_000_000
"""Most entries of the covariance matrices of a block of rows, 32 MB in double precision."""


class LatentNNGP(MeanOfRows, NNGP):
    """An `NNGP` whose data a `GaussianNNGP` knows by values of f with Gaussian noise.

    The values [N, L] are sites in a `SiteNNGP`, and numbers that stand for labels in a `LabelNNGP`.
    Every verb follows from the moments of f at a row given the values at its nearest other rows.
    """

    _TF_MODULE_IGNORED_PROPERTIES = NNGP._TF_MODULE_IGNORED_PROPERTIES | {"_gaussian"}

    @property
    def gaussian(self) -> GaussianNNGP:
        """The model of the values, of which this model lists the variables beside its own."""
        return self._gaussian

    @gaussian.setter
    def gaussian(self, model: GaussianNNGP) -> None:
        self._gaussian, self.noise = model, model.likelihood
        if isinstance(model.data[1], tf.Variable):
            self.values = model.data[1]

    def check_rows(self, X: np.ndarray, Y: np.ndarray, dims: int | None) -> None:
        """Refuse unusable rows X [N, D] and Y [N, P] of the data; raises `DataError`."""
        super().check_rows(X, Y, dims)
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)

    @property
    def of_rows(self) -> GaussianNNGP:
        """The model of the values, which are observations of f with Gaussian noise."""
        return self.gaussian

    @property
    @abc.abstractmethod
    def factors(self) -> Factors | None:
        """Of mean and variance of f in predictions; None for ones."""

    def neighbours_of(self, rows: np.ndarray, *, num_neighbours: int | None = None) -> tf.Tensor:
        """Find the nearest other rows of some rows: see `GaussianNNGP.neighbours_of`.

        :param num_neighbours: m; by default the model's.
        """
        count = self.num_neighbours if num_neighbours is None else num_neighbours
        return self.gaussian.neighbours_of(rows, before=False, num_neighbours=count)

    def cavities(self, rows: tf.Tensor, neighbours: tf.Tensor) -> Moments:
        """Moments of f at rows of the data given the values at their neighbours, (N9).

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`, for each kernel.
        :return: mean and variance [B, L], the mean function added. Cost: B L (m^3 / 3 + m^2 D), or
            B (m^3 / 3 + m^2 D) where all latents have one kernel and one noise.
        """
        X = self.data[0]

        def of_block(rows: tf.Tensor, near: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            found = []
            for k, group in enumerate(groups):
                nearest = inputs_at(group, self.gaussian.data, parts, near[:, k], rows)
                inputs, there = tf.gather(X, rows), near[:, k] >= 0
                found.append(new_given_neighbours(group.kernel, inputs, nearest, there)[:2])
            means, variances = zip(*found)
            return tf.concat(means, axis=1), tf.concat(variances, axis=1)

        groups, parts = self.gaussian.groups, (self.mean_function, self.gaussian.likelihood)
        shared = len(self.gaussian.matrices) == len(groups)
        each = 1 if shared else max(len(group.columns) for group in groups)
        size = max(1, _ENTRIES // (each * (int(neighbours.shape[-1]) + 1) ** 2))
        near = tf.transpose(neighbours, [1, 0, 2])
        rows = tf.cast(rows, tf.int32)
        mean, variance = map_rows(of_block, (rows, near), size, (X.dtype, X.dtype))
        prior = mean_values(self.mean_function, tf.gather(X, rows), self.num_latent_gps)
        return Moments(mean + prior, variance)

    def leave_one_out(
        self,
        rows: np.ndarray | None = None,
        *,
        num_neighbours: int | None = None,
        mean: str = "neighbours",
    ) -> LeaveOneOut:
        """Predict observed rows, each from the values at its nearest other rows.

        :param rows: row numbers [B]; this and the others as in `NNGP`.
        :return: moments [B, P] of the observations and log densities [B]. Cost: B L (m^3 / 3 + m^2
            D) and the search.
        """
        N = int(self.data[0].shape[0])
        rows = np.arange(N) if rows is None else check_rows(rows, N)
        X, Y = (tf.gather(part, rows) for part in self.data)
        f_mean, f_variance = scaled(self.factors, *self.left_out(rows, num_neighbours, mean))
        if np.any(np.isnan(f_mean)) or np.any(np.isnan(f_variance)):
            raise not_a_number(self, "posterior of f at rows that are left out")
        y_mean, y_variance = observation_moments(self.likelihood, X, f_mean, f_variance)
        density = observation_log_density(self.likelihood, X, f_mean, f_variance, Y)
        spread = np.ones(y_mean.shape)
        return LeaveOneOut(y_mean.numpy(), y_variance.numpy(), density.numpy(), spread)

    def left_out_scores(self, rows: np.ndarray, num_neighbours: int | None = None) -> np.ndarray:
        """Log densities [B] in nats of rows given the others, of classes by a few draws of f.

        Parameters and cost as in `leave_one_out`, whose exact integrals of classes take longer.
        """
        data = tuple(tf.gather(part, rows) for part in self.data)
        moments = scaled(self.factors, *self.left_out(rows, num_neighbours))
        return log_densities_of_labels(self.likelihood, data, *moments).numpy()

    def left_out(
        self,
        rows: np.ndarray,
        num_neighbours: int | None = None,
        mean: str = "neighbours",
        *,
        exact: bool = True,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [B, L] of f at observed rows given the others, without `factors`.

        Parameters and cost as in `leave_one_out`.

        :param exact: False for a mean of all other rows by variances given neighbours.
        """
        check_option("mean", mean, MEANS)
        count = self.prediction_neighbours if num_neighbours is None else num_neighbours
        near = self.gaussian.neighbours_of(rows, before=False, num_neighbours=count)
        f_mean, f_variance, _ = self.cavities(tf.constant(rows, tf.int32), near)
        if mean == "data":
            f_mean = self.mean_without(tf.constant(rows), None if exact else f_variance)
        return f_mean, f_variance

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> NeighboursPosterior:
        """A posterior of f for many predictions: see `NNGP`."""
        return NeighboursPosterior(
            self.kernel,
            self.gaussian.likelihood,
            self.gaussian.data,
            self.prediction_neighbours,
            self.mean_function,
            self.mean_coefficients if self.mean == "data" else None,
            self,
            factors=self.factors,
            precompute_cache=precompute_cache,
        )
