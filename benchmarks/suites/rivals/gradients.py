"""Stochastic gradients of a parametrised q: GPflow's `VGP`, its bound's gradient estimated from
rows and draws, and Adam.

`VGP` has q(f) = N(m_0 + R mu, R L L^T R^T) with R R^T = K. A step draws B of the N rows, and S
values of f_n for each of them. Their means m_n and variances v_n are functions of mu and L. With
estimates of g_n = dE_n/dm_n and h_n = dE_n/dv_n, the gradient of

    N/B sum_n (g_n m_n + h_n v_n) - KL[q || p],   g_n and h_n held,
    (C68)

is an unbiased estimate of that of the bound. The estimators differ in g_n and h_n alone, with l =
log p(y_n | f) and f = m_n + sqrt(v_n) eps: "reparameterised" (Kingma & Welling 2014) averages l'
and l' eps / (2 sqrt v), (C5) and (C6), and "score function" (black-box VI, Ranganath et al. 2014)
averages l eps / sqrt v and l (eps^2 - 1) / (2 v), (C67), which needs no derivative of l. Both use
the draws of f_n for the term of row n alone; with draws of the whole f, the score function would
multiply each term by the noise of all others."""

from __future__ import annotations

__all__ = ["ESTIMATORS", "VGPGradient", "by_score_function", "started_by_adam"]

from collections.abc import Callable, Sequence

import gpflow
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.keras import tf_keras

from gpflow_decoupled.models.checks import log_densities, variational_expectations
from gpflow_decoupled.optimizers.data_passes import Expectations, by_sampling

from .runs import Started


def by_score_function(
    model: gpflow.models.GPModel,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    samples: int,
    seed: tf.Tensor,
) -> Expectations:
    """Estimates of E_n [B], g_n and h_n [B, L] from values of the log density alone.

    Where there are several draws, each is used less the mean of the others, which leaves estimates
    unbiased and removes the noise that is due to the level of the log density.

    :param model: its likelihood, mean function and mixing of outputs are used.
    :param mean: of the latents under q [B, L], less the mean function.
    :param variance: of the latents under q [B, L].
    :param data: X [B, D], Y [B, P].
    :param samples: draws per row.
    :param seed: [2].
    """
    epsilon = tf.random.stateless_normal(
        tf.concat([[samples], tf.shape(mean)], axis=0), seed, dtype=mean.dtype
    )
    deviation = tf.sqrt(variance)
    densities = log_densities(model, mean + deviation * epsilon, data)
    value = tf.reduce_mean(densities, axis=0)
    less = (densities - value) * (samples / (samples - 1.0)) if samples > 1 else densities
    g = tf.reduce_mean(less[..., None] * epsilon, axis=0) / deviation  # (C67)
    h = tf.reduce_mean(less[..., None] * (tf.square(epsilon) - 1.0), axis=0) / (
        2.0 * variance
    )  # (C67)
    return Expectations(value, g, h)


ESTIMATORS = {"reparameterised": by_sampling, "score function": by_score_function}
"""Name -> function that estimates E, g and h from draws."""


class VGPGradient:
    """Gradients of the bound of a `gpflow.models.VGP` in q_mu and q_sqrt, and steps of Adam, at a
    fixed kernel.

    :param model: the model, all of whose latent functions share one kernel; or, with `data` and
        `root`, one of a linear function with a whitened (q_mu, q_sqrt) of its weights.
    :param estimator: a name of `ESTIMATORS`; None takes exact expectations.
    :param data: X [N, D], Y [N, P]; those of the model if not given.
    :param root: R [N, M] of the latents m_0 + R v, where q(v) = N(q_mu, q_sqrt q_sqrt^T) and v is
        N(0, I) a priori; the Cholesky factor of K if not given.
    :param samples: draws per row and step.
    :param rate: the learning rate of Adam.
    :param seed: of the draws.
    :raises KeyError: for another estimator.

    Cost: M^2 B per step, for a `VGP` N^2 (B + 1), and once N^3 / 3. Example::

        rule = VGPGradient(gpflow.models.VGP(data, kernel, likelihood), "reparameterised", samples=10, rate=0.01)
        for step, rows in enumerate(batches):
            rule.minimize(rows, step)
    """  # noqa: E501

    def __init__(
        self,
        model: gpflow.models.GPModel,
        estimator: str | None,
        *,
        data: RegressionData | None = None,
        root: tf.Tensor | None = None,
        samples: int = 10,
        rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.model, self.samples, self.seed = model, samples, seed
        self._estimate = None if estimator is None else ESTIMATORS[estimator]
        self._data = model.data if data is None else data
        self._root = _root_of(model) if root is None else root
        self.adam = tf_keras.optimizers.Adam(rate)

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """What Adam moves: those of q_mu [M, L] and q_sqrt [L, M, M]."""
        return [self.model.q_mu.unconstrained_variable, self.model.q_sqrt.unconstrained_variable]

    def gradient(self, rows: tf.Tensor, step: int | tf.Tensor = 0) -> list[tf.Tensor]:
        """An estimate of the gradient of minus the bound in `variables`.

        :param rows: [B], indices drawn evenly from the N; with all of them and exact expectations
            it is the gradient.
        :param step: its number, which sets the draws.
        """
        model = self.model
        batch = tuple(tf.gather(array, rows) for array in self._data)
        root = tf.gather(self._root, rows)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            mean = tf.matmul(root, model.q_mu)
            variance = tf.transpose(
                tf.reduce_sum(tf.square(tf.matmul(root, model.q_sqrt)), axis=-1)
            )
            divergence = gpflow.kullback_leiblers.gauss_kl(model.q_mu, model.q_sqrt)
            loss = divergence - self._scale(rows) * self._data_term(
                mean, variance, batch, step
            )  # (C68)
        return tape.gradient(loss, self.variables)

    def minimize(self, rows: tf.Tensor, step: int | tf.Tensor = 0) -> None:
        """One step of Adam on `rows` [B]; safe inside `tf.function`."""
        self.adam.apply_gradients(zip(self.gradient(rows, step), self.variables))

    def _data_term(
        self, mean: tf.Tensor, variance: tf.Tensor, batch: RegressionData, step: int | tf.Tensor
    ) -> tf.Tensor:
        """Of the rows of a minibatch: a number whose gradient is an estimate of that of their sum
        of E_n.
        """
        if self._estimate is None:
            return tf.reduce_sum(variational_expectations(self.model, mean, variance, batch))
        seed = tf.convert_to_tensor([self.seed, step], tf.int32)
        held = tf.stop_gradient(mean), tf.stop_gradient(variance)
        found = self._estimate(self.model, *held, batch, self.samples, seed)
        g, h = tf.stop_gradient(found.g), tf.stop_gradient(found.h)
        return tf.reduce_sum(g * mean + h * variance)

    def _scale(self, rows: tf.Tensor) -> tf.Tensor:
        """N/B."""
        dtype = self.model.q_mu.dtype
        return tf.cast(tf.shape(self._data[0])[0], dtype) / tf.cast(tf.shape(rows)[0], dtype)


def started_by_adam(rule: VGPGradient, elbo: Callable[[], tf.Tensor]) -> Started:
    """Steps of a rule on its model, whose bound on all data is `elbo`."""
    rule.adam.build(rule.variables)

    def step(rows: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        rule.minimize(rows, number)
        return tf.constant(True)

    return Started(rule.model, step, [*rule.variables, *rule.adam.variables], elbo)


def _root_of(model: gpflow.models.VGP) -> tf.Tensor:
    """The Cholesky factor of K + jitter I, as `VGP` adds it."""
    K = model.kernel(model.data[0])
    return tf.linalg.cholesky(
        tf.linalg.set_diag(K, tf.linalg.diag_part(K) + gpflow.config.default_jitter())
    )
