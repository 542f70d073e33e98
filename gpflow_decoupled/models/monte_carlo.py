"""Draws for the data term."""

from __future__ import annotations

__all__ = ["MonteCarlo"]

import tensorflow as tf

from .. import replicas
from ..errors import DataError
from ..inputs import check_whole, is_whole
from ..summaries import short_repr


class MonteCarlo(tf.Module):
    """Stochastic gradient variational Bayes (Kingma & Welling 2014): the data term from draws.

    Draws f = m + sqrt(v) eps make bound and gradients unbiased, for likelihoods whose quadrature is
    expensive (20^L nodes for L latents) or missing (`Softmax`). Sweeps and L-BFGS need exact
    values. Cost: S N evaluations of the log density, memory S N L.

    :param num_samples: S, draws per observation and evaluation, in pairs of opposite signs.
    :param seed: of the draws, with the number of evaluations, `calls`.

    Example::

        likelihood = gpflow.likelihoods.Softmax(3)
        model = ODVGP(
            gpflow.kernels.Matern52(), likelihood, gamma, beta, expectations=MonteCarlo(10)
        )
        result = gpflow_decoupled.fit(model, (X, Y))
    """

    def __init__(self, num_samples: int = 10, seed: int = 0) -> None:
        super().__init__()
        if not is_whole(num_samples, 1):
            raise DataError(
                f"num_samples={short_repr(num_samples)} must be a whole number, at least 1."
            )
        check_whole(0, seed=seed)
        self.num_samples, self.seed = int(num_samples), int(seed)
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False, name="calls")

    def draw(self, like: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers [S, N, L] for a mean [N, L], new at every call and replica."""
        seed = replicas.fold_in_rank(
            tf.stack([tf.constant(self.seed, tf.int64), self.calls.assign_add(1)])
        )
        half = (self.num_samples + 1) // 2
        epsilon = tf.random.stateless_normal(
            tf.concat([[half], tf.shape(like)], axis=0), seed, dtype=like.dtype
        )
        return tf.concat([epsilon, -epsilon[: self.num_samples - half]], axis=0)
