"""Classes: least squares on their indicators, as sure as left-out labels bear out."""

from __future__ import annotations

__all__ = ["LabelNNGP", "LatentNNGP", "log_densities_of_labels"]

import abc
from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import positive

from ...errors import check_option, not_a_number
from ...interrupts import all_or_nothing, one_at_a_time
from ...likelihoods import observation_moments
from ...likelihoods.facts import couples_latents
from ...likelihoods.log_densities import observation_log_density
from ...linalg.conjugate_gradients import map_rows
from ..checks import Moments, as_observations, check_values
from .conditionals import Factors, mean_values, new_given_neighbours, scaled
from .gaussian import NNGP, GaussianNNGP
from .groups import arrays_of, check_rows
from .likelihood import LeaveOneOut, inputs_at
from .mean_of_rows import MEANS, MeanOfRows
from .posterior import NeighboursPosterior

# ---
# Log densities of labels given moments of f, quick enough to be asked for hundreds of times.


_DRAWS = 32
"""Of f. The exact integrals of 18 classes and 1,000 rows take half a second."""


def log_densities_of_labels(
    likelihood: Likelihood,
    data: tuple[tf.Tensor, tf.Tensor],
    mean: tf.Tensor,
    variance: tf.Tensor,
) -> tf.Tensor:
    """log p(y | N(mean, variance)) of B rows [B], in nats, differentiable in the moments.

    :param data: X [B, D] and Y [B, P].
    :param mean: of f [B, L].
    :param variance: of f [B, L].
    :return: [B]. Cost: S B C for C classes.
    """
    #     p(y) ~ 1 / S sum_s softmax_y(mean + sqrt(variance) e_s)    for a softmax
    #
    # with the same S draws e_s for all rows and calls, so that moments are compared without noise;
    # exact for other likelihoods.
    X, Y = data
    if not couples_latents(likelihood):
        return observation_log_density(likelihood, X, mean, variance, Y)
    draws = tf.constant(_draws(likelihood.num_classes), mean.dtype)
    # the gradient of a root is infinite at zero
    tiny = tf.constant(np.finfo(mean.dtype.as_numpy_dtype).tiny, mean.dtype)
    f = mean + tf.sqrt(tf.maximum(variance, tiny)) * draws
    chosen = tf.one_hot(tf.cast(Y[:, 0], tf.int32), likelihood.num_classes, dtype=mean.dtype)
    own = tf.reduce_sum(chosen * f, axis=-1) - tf.reduce_logsumexp(f, axis=-1)
    return tf.reduce_logsumexp(own, axis=0) - float(np.log(_DRAWS))


def _draws(num_classes: int) -> np.ndarray:
    """Standard normal numbers [S, 1, C] in pairs of opposite sign, of variance one exactly."""
    half = np.random.default_rng(0).standard_normal((_DRAWS // 2, 1, num_classes))
    half /= np.sqrt(np.mean(half**2, axis=0))
    return np.concatenate([half, -half])


# ---
# Any likelihood: f is predicted from rows at which it is observed with Gaussian noise.


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


# ---


_NOISE, _LEAST_NOISE = 0.1, 0.001
"""Variances of the targets, whose own is about one: at the start, and at least. Labels that follow
a rule show no noise, and a smooth kernel that interpolated 26 classes lost all digits."""
_STEEP = 8.0
"""Of f over the indicator of a class, at the start."""


class LabelNNGP(LatentNNGP):
    """An `NNGP` for classes: least-squares classification (Rasmussen & Williams 2006, section 6.5).

    Targets t stand for the labels, and a `GaussianNNGP` (`gaussian`) predicts them. Its mean m and
    variance v given the nearest rows become moments of f by two factors:

        t_ic = ([y_i = c] - 1 / C) C / sqrt(C - 1),     t_ic = g_c(x_i) + e_ic
        p(y | x) = int softmax_y(f) N(f; a m, b v) df

    A softmax takes little from each label, least squares nearly all. The C functions g_c have one
    covariance matrix, so a row costs one factorisation whatever C is, and is left out exactly.
    Kernel, noise, a (`mean_factor`) and b (`variance_factor`) predict left-out rows best:
    `training_loss` is minus the sum of their log densities, so that wrong noise of labels costs
    little. It is no bound of the evidence. For sites make a `SiteNNGP`.

    Parameters as in `NNGP`; Y is [N, 1], the mean function is added to g. Cost: N (m^3 / 3 + m^2 D)
    for all rows once. Example::

        likelihood = gpflow_decoupled.likelihoods.CategoricalLogit(10)
        model = NNGP((X, Y), kernel, likelihood, num_neighbours=40)
        gpflow_decoupled.fit(model)
        probabilities, _ = model.predict_y(Xnew)
    """

    of_gaussian_noise: ClassVar[bool] = False
    route: ClassVar[str] = "neighbour_labels"
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
        steep = _STEEP * np.sqrt(likelihood.num_classes - 1) / likelihood.num_classes
        self.mean_factor = gpflow.Parameter(steep, transform=positive())
        self.variance_factor = gpflow.Parameter(steep**2, transform=positive())
        X = self.data[0]
        # replaced at once, but a class that is missing would be warned of
        values = tf.cast(tf.range(tf.shape(X)[0])[:, None] % 2, X.dtype)
        self.gaussian = GaussianNNGP(
            (X, tf.repeat(values, self.num_latent_gps, axis=1)),
            self.kernel,
            Gaussian(_NOISE, variance_lower_bound=_LEAST_NOISE),
            num_neighbours=self.num_neighbours,
            prediction_neighbours=self.prediction_neighbours,
            mean_function=self.mean_function,
            seed=seed,
        )
        self.gaussian.data = X, self._targets(self.data[1])

    @classmethod
    def serves(cls, likelihood: Likelihood | None) -> bool:
        """True for classes by a softmax."""
        return couples_latents(likelihood)

    @property
    def factors(self) -> Factors:
        """`mean_factor` and `variance_factor`."""
        return self.mean_factor, self.variance_factor

    def log_likelihood(self, rows: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
        """Log densities of left-out labels: a pure function of the Parameters.

        Their sum over B random rows, times N / B, is an unbiased estimate of the objective.

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`.
        :return: [B], in nats, by 32 fixed draws of f. Cost: B (m^3 / 3 + m^2 D).
        """
        X, Y = (tf.gather(part, rows) for part in self.data)
        moments = scaled(self.factors, *self.cavities(rows, neighbours)[:2])
        return log_densities_of_labels(self.likelihood, (X, Y), *moments)

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The sum of the log densities of all rows, each left out, in nats; no bound.

        Cost: N (m^3 / 3 + m^2 D), and a search for the neighbours of all rows.
        """
        with tf.init_scope():
            numbers = np.arange(int(self.data[0].shape[0]))
            around = self.neighbours_of(numbers)
        return tf.reduce_sum(self.log_likelihood(tf.constant(numbers, tf.int32), around))

    @one_at_a_time
    def update(self, new_data: RegressionData) -> None:
        """Add observations X [N*, D] and Y [N*, 1]; the Parameters stay.

        Compile functions again.

        :raises DataError: for unusable data, with nothing changed.
        """
        X, Y = arrays_of(new_data, self.float_type)
        self.check_rows(X, Y, self.num_dims)
        new = tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)
        data = tuple(tf.concat(pair, axis=0) for pair in zip(self.data, new))
        with all_or_nothing([], [self, self.gaussian]):
            self.gaussian.update((X, self._targets(new[1])))
            self.data = data

    def _targets(self, Y: tf.Tensor) -> tf.Tensor:
        """t [N, C] of labels [N, 1], of variance one where classes are as frequent."""
        C = self.likelihood.num_classes
        indicators = tf.one_hot(tf.cast(Y[:, 0], tf.int32), C, dtype=self.float_type)
        return (indicators - 1.0 / C) * (C / np.sqrt(C - 1))
