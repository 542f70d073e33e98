"""Any likelihood: sites, which move and predict by their nearest neighbours."""

from __future__ import annotations

__all__ = ["SiteNNGP"]

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ...errors import ModelError, check_option
from ...inputs import check_finite_entries, check_whole
from ...likelihoods import observation_moments
from ...linalg.blocks import map_rows
from ..checks import as_observations, check_values
from ..expectations import Moments
from .base import NNGP
from .checks import arrays_of, check_rows
from .conditionals import Observations, new_given_neighbours
from .factors import Factors, factors_of, scaled
from .gaussian import GaussianNNGP
from .likelihood import LeaveOneOut
from .mean_of_rows import MEANS, MeanOfRows
from .observed import mean_values, residuals_of
from .posterior import NeighboursPosterior

_LEAST = {tf.float64: 1e-8, tf.float32: 1e-4}
"""Least precision of a site, in units of one over the prior variance: a site that says nothing is
an observation with that much noise. Below it the covariance of neighbours is round-off."""
_PASSES, _BATCH, _BATCHES = 3, 1000, 4
"""Of `update`: passes over the new sites, most rows of a batch, and least batches of a pass."""
_ENTRIES = 4_000_000
"""Most entries of the covariance matrices of a block of rows, 32 MB in double precision."""


class SiteNNGP(MeanOfRows, NNGP):
    """An `NNGP` for any likelihood, by conjugate computation.

    As in a `CVIGP` (Khan & Lin 2017), q(f) is the prior times sites t_i(f) = exp(nu_i f - lambda_i
    f^2 / 2), so given the sites a `GaussianNNGP` (`gaussian`):

        cavity of i:  m_c, v_c = moments of f_i given its nearest other sites               (N9)
        q(f_i):       v = 1 / (1 / v_c + lambda_i),   mean = v (m_c / v_c + nu_i)
        log Z_i = log of the integral of t_i(f) N(f; m_c, v_c), c the nearest earlier sites (N10)

    With all rows as neighbours q is the `CVIGP`'s with the same sites; with fewer nothing is a
    bound. Predictions of a softmax have the mean of f times `mean_factor` and its variance times
    `variance_factor`, both one until `fit` ends by finding them on left-out rows.

    Parameters as in `NNGP`; Y is [N, P]. `fit` trains sites and hyperparameters,
    `optimizers.SiteSweeps` the sites alone. Cost: N L (m^3 / 3 + m^2 D) for all sites once.
    Example::

        likelihood = gpflow.likelihoods.Bernoulli()
        model = NNGP((X, Y), kernel, likelihood, num_neighbours=40)
        gpflow_decoupled.fit(model)
        probability, _ = model.predict_y(Xnew)
    """

    of_gaussian_noise: ClassVar[bool] = False
    route: ClassVar[str] = "neighbour_sites"
    """Of `fit`."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(data, kernel, likelihood, seed=seed, **options)
        self._seed = seed
        self.mean_factor, self.variance_factor = factors_of(self.likelihood)
        self.gaussian = self._without_sites()
        """The `GaussianNNGP` of the sites as observations of f."""

    def check_rows(self, X: np.ndarray, Y: np.ndarray, dims: int | None) -> None:
        """Refuse unusable rows X [N, D] and Y [N, P] of the data; raises `DataError`."""
        super().check_rows(X, Y, dims)
        check_finite_entries(np.asarray(Y, float), "Y")
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)

    @property
    def of_rows(self) -> GaussianNNGP:
        """The model of the sites, whose values are observations of f with Gaussian noise."""
        return self.gaussian

    @property
    def sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """nu and lambda of the sites, [N, L] each."""
        precision = 1.0 / tf.convert_to_tensor(self.gaussian.likelihood.variance)
        return precision * self.gaussian.data[1], precision

    def assign_sites(self, rows: tf.Tensor, nu: tf.Tensor, precision: tf.Tensor) -> None:
        """Set the sites of some rows; safe inside a `tf.function`.

        :param rows: row numbers [B].
        :param nu: [B, L].
        :param precision: lambda [B, L], non-negative; raised to 1e-8 of the prior precision.
        """
        precision = tf.maximum(precision, self._least_precision(rows))
        # not `scatter_nd_update`, which variables of a strategy lack
        self.gaussian.data[1].scatter_update(tf.IndexedSlices(nu / precision, rows))
        self.gaussian.likelihood.variance.scatter_update(tf.IndexedSlices(1.0 / precision, rows))

    def neighbours_of(self, rows: np.ndarray) -> tf.Tensor:
        """Find the nearest other rows of some rows: see `GaussianNNGP.neighbours_of`."""
        return self.gaussian.neighbours_of(rows, before=False, num_neighbours=self.num_neighbours)

    def cavities(self, rows: tf.Tensor, neighbours: tf.Tensor) -> Moments:
        """Moments of f at rows of the data given the sites of their neighbours, (N9).

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`, for each kernel.
        :return: mean and variance [B, L], the mean function added. Cost: B L (m^3 / 3 + m^2 D).
        """
        X = self.data[0]

        def of_block(rows: tf.Tensor, near: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            found = []
            for k, (kernel, columns, _) in enumerate(groups):
                nearest = self._observed(tf.maximum(near[:, k], 0), columns)
                found.append(
                    new_given_neighbours(kernel, tf.gather(X, rows), nearest, near[:, k] >= 0)[:2]
                )
            means, variances = zip(*found)
            return tf.concat(means, axis=1), tf.concat(variances, axis=1)

        groups = self.gaussian.groups
        each = max(len(group.columns) for group in groups)
        size = max(1, _ENTRIES // (each * (int(neighbours.shape[-1]) + 1) ** 2))
        near = tf.transpose(neighbours, [1, 0, 2])
        rows = tf.cast(rows, tf.int32)
        mean, variance = map_rows(of_block, (rows, near), size, (X.dtype, X.dtype))
        prior = mean_values(self.mean_function, tf.gather(X, rows), self.num_latent_gps)
        return Moments(mean + prior, variance)

    def _observed(self, rows: tf.Tensor, columns: tuple[int, ...]) -> Observations:
        """Sites of rows [B, m] as observations, for some latents; no pass over all rows."""
        X, values = self.data[0], self.gaussian.data[1]
        X = tf.gather(X, rows)
        residuals = residuals_of(self.mean_function, X, tf.gather(values, rows))
        noise = tf.gather(self.gaussian.likelihood.variance, rows)
        parts = (tf.gather(part, columns, axis=-1) for part in (residuals, noise))
        return Observations(X, *parts)

    def _sites_of(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        precision = 1.0 / tf.gather(self.gaussian.likelihood.variance, rows)
        return precision * tf.gather(self.gaussian.data[1], rows), precision

    def at_sites(self, cavity: Moments, rows: tf.Tensor) -> Moments:
        """Moments of q(f) at rows [B] of the data, cavities times sites, [B, L] each."""
        return _at(cavity, *self._sites_of(rows))

    def _least_precision(self, rows: tf.Tensor) -> tf.Tensor:
        X = tf.gather(self.data[0], rows)
        return _LEAST[X.dtype] / self.prior_variances(X)

    def move_sites(self, rows: tf.Tensor, neighbours: tf.Tensor, step_size: tf.Tensor) -> tf.Tensor:
        """Take a step of conjugate computation on the sites of some rows: see `moved_sites`.

        :return: the sum of the squared changes of the means of q(f), in units of its deviations.
            Safe inside a `tf.function`.
        """
        nu, precision, change = self.moved_sites(rows, neighbours, step_size)
        self.assign_sites(rows, nu, precision)
        return tf.reduce_sum(change)

    def moved_sites(
        self, rows: tf.Tensor, neighbours: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The sites of some rows after a step of conjugate computation, (C13).

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`.
        :param step_size: rho in (0, 1], a scalar.
        :return: nu and lambda [B, L], and the squared changes of the means of q(f) [B], in units of
            its deviations. Cost: B L (m^3 / 3 + m^2 D).
        """
        cavity = self.cavities(rows, neighbours)
        old = self.at_sites(cavity, rows)
        data = tuple(tf.gather(part, rows) for part in self.data)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([old.mean, old.variance])
            expected = self.expected_log_densities(old, data)
        g, h = tape.gradient(expected, [old.mean, old.variance])
        # where a likelihood is not log-concave, precisions would be negative
        h = tf.minimum(h, 0.0)
        nu, precision = self._sites_of(rows)
        nu = (1.0 - step_size) * nu + step_size * (g - 2.0 * h * old.mean)
        precision = (1.0 - step_size) * precision - 2.0 * step_size * h
        precision = tf.maximum(precision, self._least_precision(rows))
        squares = tf.square(_at(cavity, nu, precision).mean - old.mean) / old.variance
        return nu, precision, tf.reduce_sum(squares, axis=1)

    def moments(self, data: RegressionData | None = None) -> Moments:
        """Mean and variance [N, L] of f under q at X [N, D]; None is the model's own data."""
        if data is not None:
            return super().moments(data)
        rows = np.arange(int(self.data[0].shape[0]))
        places = tf.constant(rows, tf.int32)
        return self.at_sites(self.cavities(places, self.neighbours_of(rows)), places)

    def log_partition(self, rows: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
        """The terms of (N10) for some rows given earlier ones, [B] in nats.

        Their sum over B random rows, times N / B, is an unbiased estimate.

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `gaussian.neighbours_of`.
        """
        nu, precision = self._sites_of(rows)
        # t_i(f) is a Gaussian density of f times this factor
        factor = 0.5 * (tf.math.log(2.0 * np.pi / precision) + tf.square(nu) / precision)
        return self.gaussian.log_likelihood(rows, neighbours) + tf.reduce_sum(factor, axis=1)

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """log Z of the sites plus sum_i E_q[log p(y_i | f_i) - log t_i(f_i)], in nats.

        With all rows as neighbours the ELBO of the `CVIGP` with the same sites; else an estimate,
        no bound. Cost: 2 N L (m^3 / 3 + m^2 D), and two searches of all rows.
        """
        self._refuse_untouched()
        rows = tf.range(int(self.data[0].shape[0]))
        with tf.init_scope():
            numbers = np.arange(int(self.data[0].shape[0]))
            around, earlier = self.neighbours_of(numbers), self.gaussian.neighbours_of(numbers)
        q = self.at_sites(self.cavities(rows, around), rows)
        nu, precision = self.sites
        sites = nu * q.mean - 0.5 * precision * (tf.square(q.mean) + q.variance)
        expected = self.expected_log_densities(q)
        return tf.reduce_sum(self.log_partition(rows, earlier) + expected) - tf.reduce_sum(sites)

    def leave_one_out(
        self,
        rows: np.ndarray | None = None,
        *,
        num_neighbours: int | None = None,
        mean: str = "neighbours",
    ) -> LeaveOneOut:
        """Predict observed rows, each from the sites of its nearest other rows.

        Slightly optimistic: the other sites have seen the row through its own.

        :param rows: row numbers [B]; all rows if not given.
        :param num_neighbours: m; by default the predictions'.
        :param mean: "data" for the mean given all other sites.
        :return: moments [B, P] of the observations and log densities [B]. Cost: B L (m^3 / 3 + m^2
            D) and the search.
        """
        N = int(self.data[0].shape[0])
        rows = np.arange(N) if rows is None else check_rows(rows, N)
        X, Y = (tf.gather(part, rows) for part in self.data)
        f_mean, f_variance = scaled(self.factors, *self.left_out(rows, num_neighbours, mean))
        y_mean, y_variance = observation_moments(self.likelihood, X, f_mean, f_variance)
        density = self.likelihood.predict_log_density(X, f_mean, f_variance, Y)
        spread = np.ones(y_mean.shape)
        return LeaveOneOut(y_mean.numpy(), y_variance.numpy(), density.numpy(), spread)

    def left_out(
        self, rows: np.ndarray, num_neighbours: int | None = None, mean: str = "neighbours"
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [B, L] of f at observed rows given the others, without `factors`.

        Parameters and cost as in `leave_one_out`.
        """
        check_option("mean", mean, MEANS)
        count = num_neighbours or self.prediction_neighbours
        near = self.gaussian.neighbours_of(rows, before=False, num_neighbours=count)
        f_mean, f_variance, _ = self.cavities(tf.constant(rows, tf.int32), near)
        if mean == "data":
            f_mean = self.mean_without(tf.constant(rows), f_variance)
        return f_mean, f_variance

    @property
    def factors(self) -> Factors | None:
        """`mean_factor` and `variance_factor`; None where predictions have none."""
        if self.mean_factor is None or self.variance_factor is None:
            return None
        return self.mean_factor, self.variance_factor

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

    def update(self, new_data: RegressionData, *, passes: int = _PASSES) -> None:
        """Add observations, and find their sites; the sites of old rows and Parameters stay.

        Compile functions again.

        :param new_data: X [N*, D], Y [N*, P].
        :param passes: over the new sites; 0 leaves them uninformative for
            `optimizers.SiteSweeps(model).run(rows=...)`.
        :raises DataError: for unusable data, with nothing changed.

        Cost: a search, and N* L (m^3 / 3 + m^2 D) a pass.
        """
        check_whole(0, passes=passes)
        X, Y = arrays_of(new_data, self.float_type)
        self.check_rows(X, Y, self.num_dims)
        new = tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)
        old, first = self.sites, int(self.data[0].shape[0])
        self.data = tuple(tf.concat(pair, axis=0) for pair in zip(self.data, new))
        self.gaussian = self._without_sites()
        self.assign_sites(tf.range(first), *old)
        if passes:
            self._find_sites(np.arange(first, first + len(X)), passes)

    def _find_sites(self, rows: np.ndarray, passes: int) -> None:
        """Move the sites of rows [B] by steps of one, in batches: each sees the last one moved."""
        near, one = self.neighbours_of(rows), tf.ones([], self.float_type)
        size = min(_BATCH, -(-len(rows) // _BATCHES))
        for _ in range(passes):
            for first in range(0, len(rows), size):
                some = tf.constant(rows[first : first + size], tf.int32)
                self.move_sites(some, near[:, first : first + size], one)

    def _without_sites(self) -> GaussianNNGP:
        """A Gaussian model of f at the data without information."""
        X = self.data[0]
        # replaced at once, but constant ones would be warned of
        values = tf.cast(tf.range(tf.shape(X)[0])[:, None] % 2, X.dtype)
        model = GaussianNNGP(
            (X, tf.repeat(values, self.num_latent_gps, axis=1)),
            self.kernel,
            num_neighbours=self.num_neighbours,
            prediction_neighbours=self.prediction_neighbours,
            mean_function=self.mean_function,
            seed=self._seed,
        )
        noise = self.prior_variances(X) / _LEAST[X.dtype]
        model.likelihood.variance = tf.Variable(noise, trainable=False)
        model.data = X, tf.Variable(tf.zeros_like(noise), trainable=False)
        return model

    def prior_variances(self, X: tf.Tensor) -> tf.Tensor:
        """Variances of the latents under the prior at X [N, D], [N, L]."""
        kernel = self.kernel
        kernels = kernel.latent_kernels if isinstance(kernel, MultioutputKernel) else [kernel]
        variances = tf.stack([one(X, full_cov=False) for one in kernels], axis=-1)
        return variances + tf.zeros([self.num_latent_gps], X.dtype)

    def _refuse_untouched(self) -> None:
        with tf.init_scope():
            touched = np.any(self.gaussian.data[1].numpy())
        if not touched:
            raise ModelError(
                "training_loss of this NNGP is of the prior: no gradient moves its sites,"
                " and GPflow's optimizers would fit the kernel to no data. Call"
                " gpflow_decoupled.fit(model); or gpflow_decoupled.optimizers.SiteSweeps(model)"
                ".run() first, after which training_loss is of hyperparameters at these sites."
            )


def _at(cavity: Moments, nu: tf.Tensor, precision: tf.Tensor) -> Moments:
    """Cavities times sites, [B, L] each."""
    shrunk = 1.0 / (1.0 + precision * cavity.variance)
    return Moments(shrunk * (cavity.mean + cavity.variance * nu), shrunk * cavity.variance)
