"""Any likelihood: sites, which move and predict by their nearest neighbours."""

from __future__ import annotations

__all__ = ["SiteNNGP", "SiteUpdate"]

import copy
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...covariances.latents import prior_variance
from ...inputs import check_whole
from ...interrupts import all_or_nothing, one_at_a_time
from ...likelihoods.facts import base_of, is_by_entry, split_rows
from ..checks import (
    Moments,
    Resolution,
    as_observations,
    check_draws,
    check_new_sites,
    refuse_gradient,
    sampled_expectations,
)
from .conditionals import Factors, mean_values
from .gaussian import GaussianNNGP
from .groups import NOTHING, arrays_of
from .labels import LabelNNGP, LatentNNGP

_LEAST = {tf.float64: 1e-8, tf.float32: 1e-4}
"""Least precision of a site, in units of one over the prior variance: a site that says nothing is
an observation with that much noise. Below it the covariance of neighbours is round-off."""
_PASSES, _BATCH, _BATCHES = 30, 1000, 4
"""Of `update`: most passes over the new sites, most rows of a batch, and least batches of a pass.
"""
_SETTLED = 0.01
"""Change of the means of q(f) in a pass, in its deviations, that makes it the last of `update`."""
_ROUND_OFF, _HALVINGS = {tf.float64: 1e-9, tf.float32: 1e-4}, 40
"""Fall of a row's bound, relative, that is round-off; and most halvings of its step."""
_FAR, _STEPS = 1.0, 200
"""Squared deviations of q(f) that a row moves for a further step before its neighbours move; and
most of them."""


class SiteUpdate(NamedTuple):
    """The record of an update.

    Example::

        record = model.update((X_new, Y_new))
        print(record.clipped_sites, record.change)
    """

    clipped_sites: int
    """Negative precisions of new sites that became zero, summed over the passes."""
    change: float
    """Root mean squared change of the means of q(f) at the new rows in the last pass, in units of
    its deviations; zero without passes."""


class SiteNNGP(LatentNNGP):
    """An `NNGP` for any likelihood, by conjugate computation.

    As in a `CVIGP` (Khan & Lin 2017), q(f) is the prior times sites t_i(f) = exp(nu_i f - lambda_i
    f^2 / 2), so given the sites a `GaussianNNGP` (`gaussian`):

        cavity of i:  m_c, v_c = moments of f_i given its nearest other sites               (N9)
        q(f_i):       v = 1 / (1 / v_c + lambda_i),   mean = v (m_c / v_c + nu_i)
        log Z_i = log of the integral of t_i(f) N(f; m_c, v_c), c the nearest earlier sites (N10)

    With all rows as neighbours q is the `CVIGP`'s with the same sites; with fewer nothing is a
    bound.

    Parameters as in `NNGP`; Y is [N, P]. With NaN in Y `likelihood` becomes a `RowLikelihood` of
    it; missing entries have no sites, are no neighbours, and count in no score. `fit` trains sites
    and hyperparameters, `optimizers.SiteSweeps` the sites alone. Cost: N L (m^3 / 3 + m^2 D) for
    all sites once. Example::

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
        self.gaussian = self._without_sites()
        """The `GaussianNNGP` of the sites as observations of f."""

    factors: ClassVar[Factors | None] = None

    @classmethod
    def serves(cls, likelihood: Likelihood | None) -> bool:
        """True for what neither `GaussianNNGP` nor `LabelNNGP` serves."""
        return not (GaussianNNGP.serves(likelihood) or LabelNNGP.serves(likelihood))

    @property
    def sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """nu and lambda of the sites, [N, L] each."""
        return _natural(self.gaussian.data[1], self.gaussian.likelihood.variance)

    @property
    def variables_with_gaps(self) -> list[tf.Variable]:
        """The values of the sites [N, L], which are NaN where an output is missing."""
        return [self.gaussian.data[1]]

    def assign_sites(self, rows: tf.Tensor, nu: tf.Tensor, precision: tf.Tensor) -> None:
        """Set the sites of some rows, zero for missing outputs; safe inside a `tf.function`.

        :param rows: row numbers [B].
        :param nu: [B, L].
        :param precision: lambda [B, L], non-negative; raised to 1e-8 of the prior precision.
        """
        least = self._least_precision(rows)
        gap = tf.math.is_nan(tf.gather(self.gaussian.data[1], rows))
        precision = tf.where(gap, least, tf.maximum(precision, least))
        values = tf.where(gap, tf.constant(np.nan, nu.dtype), nu / precision)
        # not `scatter_nd_update`, which variables of a strategy lack
        self.gaussian.data[1].scatter_update(tf.IndexedSlices(values, rows))
        self.gaussian.likelihood.variance.scatter_update(tf.IndexedSlices(1.0 / precision, rows))

    @classmethod
    def check_expectations(cls, likelihood: Likelihood | None) -> None:
        """Raise `DataError` for a log density whose draws have no gradient."""
        check_draws(likelihood)

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        """See `CheckedPredictions.expected_log_densities`; with `expectations` from new draws."""
        if self.expectations is None:
            return super().expected_log_densities(moments, data, doublings=doublings)
        data = self._observations(data)
        mean = moments.mean - mean_values(self.mean_function, data[0], self.num_latent_gps)
        draws = self.expectations.draw(mean)
        return sampled_expectations(self, mean, moments.variance, data, draws)

    @property
    def resolution(self) -> Resolution | None:
        return super().resolution if self.expectations is None else None

    def _sites_of(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = self.gaussian.data[1], self.gaussian.likelihood.variance
        return _natural(*(tf.gather(part, rows) for part in parts))

    def at_sites(self, cavity: Moments, rows: tf.Tensor) -> Moments:
        """Moments of q(f) at rows [B] of the data, cavities times sites, [B, L] each."""
        return _at(cavity, *self._sites_of(rows))

    def _least_precision(self, rows: tf.Tensor) -> tf.Tensor:
        return _LEAST[self.float_type] / self.prior_variances(tf.gather(self.data[0], rows))

    def move_sites(
        self, rows: tf.Tensor, neighbours: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Take a step of conjugate computation on the sites of some rows: see `moved_sites`.

        :return: the sum of the squared changes of the means of q(f), in units of its deviations,
            and the number of clipped precisions. Safe inside a `tf.function`.
        """
        nu, precision, change, clipped = self.moved_sites(rows, neighbours, step_size)
        self.assign_sites(rows, nu, precision)
        return tf.reduce_sum(change), tf.reduce_sum(clipped)

    def moved_sites(
        self, rows: tf.Tensor, neighbours: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """The sites of some rows after a step of conjugate computation, (C13).

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`.
        :param step_size: rho in (0, 1], a scalar.
        :return: nu and lambda [B, L], the squared changes of the means of q(f) [B], in units of
            its deviations, and how many negative precisions became zero [B]. Cost: B L (m^3 / 3 +
            m^2 D).
        """
        cavity = self.cavities(rows, neighbours)
        data = tuple(tf.gather(part, rows) for part in self.data)
        nu, precision = self._sites_of(rows)
        far = tf.fill(tf.shape(rows), tf.constant(2.0 * _FAR, self.float_type))
        state = nu, precision, far, tf.zeros_like(rows, tf.int32)

        def step(nu: tf.Tensor, precision: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return self._stepped(cavity, (nu, precision), data, step_size)

        # beside large counts a step ends far off, and others lead back by one each; neighbours can
        # wait for that
        return tf.while_loop(
            lambda nu, precision, squares, clipped: tf.reduce_any(squares > _FAR),
            step,
            state,
            maximum_iterations=1 if self.expectations is not None else _STEPS,
        )

    def _stepped(
        self,
        cavity: Moments,
        before: tuple[tf.Tensor, tf.Tensor],
        data: RegressionData,
        step_size: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """`moved_sites` after a step from the sites `before` at fixed cavities."""
        old = _at(cavity, *before)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([old.mean, old.variance])
            expected = self.expected_log_densities(old, data)
        g, h = tape.gradient(expected, [old.mean, old.variance])
        # where a likelihood is not log-concave, precisions would be negative
        clipped = tf.math.count_nonzero(h > 0.0, axis=1, dtype=tf.int32)
        h = tf.minimum(h, 0.0)
        goal = g - 2.0 * h * old.mean, -2.0 * h
        least = _LEAST[self.float_type] / self.prior_variances(data[0])

        def moved(share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Moments]:
            size = (step_size * share)[:, None]
            nu, precision = ((1.0 - size) * was + size * new for was, new in zip(before, goal))
            precision = tf.maximum(precision, least)
            return nu, precision, _at(cavity, nu, precision)

        share = tf.ones_like(expected)
        if self.expectations is None:  # two draws cannot be compared
            share = self._shares(share, expected, lambda some: moved(some)[2], old, cavity, data)
        nu, precision, q = moved(share)
        squares = tf.square(q.mean - old.mean) / old.variance
        return nu, precision, tf.reduce_sum(squares, axis=1), clipped

    def _shares(
        self,
        share: tf.Tensor,
        expected: tf.Tensor,
        moved: Callable[[tf.Tensor], Moments],
        old: Moments,
        cavity: Moments,
        data: RegressionData,
    ) -> tf.Tensor:
        """Halve the steps [B] of rows whose own bound would fall, as beside large counts.

            E_q log p(y_i | f_i) - KL[q(f_i) || cavity]

        From f = 0 a step towards log 10,000 ends at f = 110, and more come back by one each.
        """
        before = expected - _divergence(old, cavity)
        slack = _ROUND_OFF[self.float_type] * (1.0 + tf.abs(before))
        least = tf.where(tf.math.is_finite(before), before - slack, -np.inf * tf.ones_like(before))

        def halved(share: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            q = moved(share)
            after = self.expected_log_densities(q, data) - _divergence(q, cavity)
            fell = ~(after >= least)  # also where it is NaN
            return tf.where(fell, 0.5 * share, share), tf.reduce_any(fell)

        share, _ = tf.while_loop(
            lambda _, again: again, halved, (share, tf.constant(True)), maximum_iterations=_HALVINGS
        )
        return share

    def moments(self, data: RegressionData | None = None) -> Moments:
        """Mean and variance [N, L] of f under q at X [N, D]; None is the model's own data."""
        if data is not None:
            return super().moments(data)
        rows = np.arange(int(self.data[0].shape[0]), dtype=np.int32)
        return self.at_sites(self.cavities(rows, self.neighbours_of(rows)), rows)

    def log_partition(self, rows: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
        """The terms of (N10) for some rows given earlier ones, [B] in nats.

        Their sum over B random rows, times N / B, is an unbiased estimate.

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `gaussian.neighbours_of`.
        """
        parts = self.gaussian.data[1], self.gaussian.likelihood.variance
        value, variance = (tf.gather(part, rows) for part in parts)
        # t_i(f) is a Gaussian density of f times this factor
        factor = 0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(value) / variance)
        factor = tf.where(tf.math.is_nan(value), tf.zeros_like(factor), factor)
        return self.gaussian.log_likelihood(rows, neighbours) + tf.reduce_sum(factor, axis=1)

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """log Z of the sites plus sum_i E_q[log p(y_i | f_i) - log t_i(f_i)], in nats.

        With all rows as neighbours the ELBO of the `CVIGP` with the same sites; else an estimate,
        no bound. Cost: 2 N L (m^3 / 3 + m^2 D), and two searches of all rows.
        """
        rows = tf.range(int(self.data[0].shape[0]))
        with tf.init_scope():
            numbers = np.arange(int(self.data[0].shape[0]))
            around, earlier = self.neighbours_of(numbers), self.gaussian.neighbours_of(numbers)
        q = self.at_sites(self.cavities(rows, around), rows)
        nu, precision = self.sites
        sites = nu * q.mean - 0.5 * precision * (tf.square(q.mean) + q.variance)
        expected = self.expected_log_densities(q)
        return tf.reduce_sum(self.log_partition(rows, earlier) + expected) - tf.reduce_sum(sites)

    @one_at_a_time
    def update(self, new_data: RegressionData, *, passes: int = _PASSES) -> SiteUpdate:
        """Add observations, and find their sites; the sites of old rows and Parameters stay.

        :param new_data: X [N*, D], Y [N*, P].
        :param passes: most, over the new sites until they hardly move; 0 leaves them uninformative
            for `optimizers.SiteSweeps(model).run(rows=...)`.
        :return: how many negative precisions became zero, and the change of the last pass.

        Compile functions again. Cost: a search, and N* L (m^3 / 3 + m^2 D) a pass.
        """
        check_whole(0, passes=passes)
        X, Y = arrays_of(new_data, self.float_type)
        self.check_rows(X, Y, self.num_dims)
        new = tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)
        old, first = self.sites, int(self.data[0].shape[0])
        # the sites are found on a copy, which nobody sees, so that the model changes in one step;
        # nor does the copy's tracking change the model's
        twin = copy.copy(self)
        joined = tuple(tf.concat(pair, axis=0) for pair in zip(self.data, new))
        twin.__dict__.update(data=joined)
        twin.__dict__.update(_gaussian=twin._without_sites())
        twin.assign_sites(tf.range(first), *old)
        gap = np.isnan(twin.gaussian.data[1][first:])
        record = twin._find_sites(np.arange(first, first + len(X)), passes)
        values, variances = twin.gaussian.data[1], twin.gaussian.likelihood.variance
        check_new_sites(Y, np.where(gap, 0.0, values[first:]), variances[first:])
        with all_or_nothing([], [self]):
            self.data, self.gaussian = twin.data, twin.gaussian
        return record

    def _find_sites(self, rows: np.ndarray, passes: int) -> SiteUpdate:
        """Move the sites of rows [B] by steps of one, in batches: each sees the last one moved."""
        if not (passes and len(rows)):
            return SiteUpdate(0, 0.0)
        near, one = self.neighbours_of(rows), tf.ones([], self.float_type)
        size, clipped = min(_BATCH, -(-len(rows) // _BATCHES)), 0
        for _ in range(passes):
            squares = 0.0
            for first in range(0, len(rows), size):
                some = tf.constant(rows[first : first + size], tf.int32)
                moved, negative = self.move_sites(some, near[:, first : first + size], one)
                squares, clipped = squares + float(moved), clipped + int(negative)
            change = (squares / (len(rows) * self.num_latent_gps)) ** 0.5
            if change < _SETTLED:
                break
        return SiteUpdate(clipped, change)

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
        zeros = tf.zeros_like(noise)
        base = base_of(self.likelihood)
        if base is not self.likelihood and is_by_entry(base):
            # as missing outputs of Gaussian noise, they are no neighbours
            y, numbers = split_rows(self.likelihood, self.data[1])
            says = tf.cast(numbers.get("weight", 1.0), X.dtype) / (
                1.0 + numbers.get("noise", 0.0) / self.prior_variances(X)
            )
            gap = tf.math.is_nan(y) | (says < NOTHING)
            zeros = tf.where(gap, tf.constant(np.nan, zeros.dtype), zeros)
        model.data = X, tf.Variable(zeros, trainable=False)
        return model

    def prior_variances(self, X: tf.Tensor) -> tf.Tensor:
        """Variances of the latents under the prior at X [N, D], [N, L]."""
        variances = tf.transpose(prior_variance(self.kernel, X, full_cov=False))
        return variances + tf.zeros([self.num_latent_gps], X.dtype)

    @tf.autograph.experimental.do_not_convert
    def training_loss(self) -> tf.Tensor:
        """Minus the objective and the log prior of the hyperparameters, at fixed sites, a scalar.

        :raises ModelError: in its gradient, while there are no sites.
        """
        loss = super().training_loss()
        return refuse_gradient(
            self, loss, lambda: [self.gaussian.data[1]], "SiteSweeps(model).run()"
        )


def _natural(values: tf.Tensor, variances: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """nu and lambda of values with noise, zero where NaN marks a missing output."""
    gap, precision = tf.math.is_nan(values), 1.0 / tf.convert_to_tensor(variances)
    nothing = tf.zeros_like(precision)
    return tf.where(gap, nothing, precision * values), tf.where(gap, nothing, precision)


def _divergence(q: Moments, cavity: Moments) -> tf.Tensor:
    """KL[q || cavity] of rows [B], in nats."""
    ratio = q.variance / cavity.variance
    far = tf.square(q.mean - cavity.mean) / cavity.variance
    return 0.5 * tf.reduce_sum(ratio - 1.0 - tf.math.log(ratio) + far, axis=-1)


def _at(cavity: Moments, nu: tf.Tensor, precision: tf.Tensor) -> Moments:
    """Cavities times sites, [B, L] each."""
    shrunk = 1.0 / (1.0 + precision * cavity.variance)
    return Moments(shrunk * (cavity.mean + cavity.variance * nu), shrunk * cavity.variance)
