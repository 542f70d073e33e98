"""PG-SVI, the method of Khan et al. (2016, UAI), on the weights of a linear model.

The step is (C64) with a function f_n = a_n^T v that is linear in weights v, N(0, I) a priori, whose
q has the precision P and the mean m. With slopes g and h at the rows of a minibatch, the columns
a_n as A, and s = N / B,

    P' = (1 - rho) P + rho (I - 2 s A diag(h) A^T),   [(1 - rho) P + rho I] (m' - m) = rho (s A g -
    m)              (C64)

Conjugate computation has P' in the place of the bracket, (C29) with (C66).
"""

from __future__ import annotations

__all__ = ["WeightsProximal"]

import tensorflow as tf
from gpflow.base import RegressionData

from gpflow_decoupled.linalg.whitening import root_from_factor
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers.ascent import MAX_HALVINGS
from gpflow_decoupled.optimizers.data_passes import by_quadrature, by_sampling
from gpflow_decoupled.optimizers.natural_steps import natural_step


class WeightsProximal:
    """Steps of PG-SVI on (q_mu, q_sqrt) of a model with one latent function that is linear in its
    whitened weights.

    :param model: a model of `CVIGLM` in the form "weight"; its kernel is fixed.
    :param data: X [N, D], Y [N, P].
    :param root: R [N, p], whose rows are a_n; f = m_0 + R v.
    :param step_size: rho in (0, 1].
    :param samples: draws for the expectations of each observation; None integrates by quadrature.
    :param seed: of the draws.

    Cost per step: p^2 B + 2 p^3. Example::

        rule = WeightsProximal(model, data, root, 0.1, samples=10)
        for step, rows in enumerate(batches):
            rule.minimize(rows, step)
    """

    def __init__(
        self,
        model: BasisGP,
        data: RegressionData,
        root: tf.Tensor,
        step_size: float,
        *,
        samples: int | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.data, self.root = model, data, root
        self.step_size, self.samples, self.seed = step_size, samples, seed

    def minimize(self, rows: tf.Tensor, step: int | tf.Tensor = 0) -> tf.Tensor:
        """One step on `rows` [B], with draws that its number sets; safe inside `tf.function`.

        A step whose precision is not positive definite is halved, as in conjugate computation.
        Returns whether it was taken."""
        model = self.model
        q_mu, q_sqrt = tf.convert_to_tensor(model.q_mu), tf.convert_to_tensor(model.q_sqrt)[0]
        A = tf.gather(self.root, rows)  # [B, p]: a_n in rows
        batch = tuple(tf.gather(array, rows) for array in self.data)
        # 1) the slopes at the present q
        variance = tf.reduce_sum(tf.square(tf.matmul(A, q_sqrt)), axis=1, keepdims=True)
        if self.samples is None:
            found = by_quadrature(model, tf.matmul(A, q_mu), variance, batch)
        else:
            seed = tf.convert_to_tensor([self.seed, step], tf.int32)
            found = by_sampling(model, tf.matmul(A, q_mu), variance, batch, self.samples, seed)
        scale = tf.cast(tf.shape(self.root)[0], A.dtype) / tf.cast(tf.shape(rows)[0], A.dtype)
        # 2) the covariance, and how far it can go
        one = tf.eye(tf.shape(A)[1], dtype=A.dtype)
        P = tf.linalg.cholesky_solve(q_sqrt, one)
        target = one - 2.0 * scale * tf.matmul(A, found.h * A, transpose_a=True)
        rho = tf.constant(self.step_size, A.dtype)
        new, halvings = natural_step(q_mu, P[None], q_mu, target[None], rho, MAX_HALVINGS)  # (C64)
        rho /= tf.cast(2**halvings, A.dtype)
        # 3) the mean
        bracket = tf.linalg.cholesky((1.0 - rho) * P + rho * one)
        slope = scale * tf.matmul(A, found.g, transpose_a=True) - q_mu
        mean = q_mu + rho * tf.linalg.cholesky_solve(bracket, slope)  # (C64)
        ok = new.ok & tf.reduce_all(tf.math.is_finite(mean))

        def write() -> tf.Tensor:
            model.q_mu.assign(mean)
            model.q_sqrt.assign(root_from_factor(new.factor))
            return tf.constant(True)

        return tf.cond(ok, write, lambda: tf.constant(False))
