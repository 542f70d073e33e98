"""The random numbers of a data term that is estimated from draws."""

from __future__ import annotations

__all__ = ["MonteCarlo"]

import tensorflow as tf

from .. import replicas
from ..errors import DataError
from ..inputs import check_whole, is_whole
from ..summaries import short_repr


class MonteCarlo(tf.Module):
    """Stochastic gradient variational Bayes (Kingma & Welling 2014, arXiv:1312.6114): the data term
    from draws of f.

    The bound and its gradients, dE/dmean and dE/dvar among them, become unbiased estimates from
    reparameterised draws f = m + sqrt(v) eps. Use it for likelihoods whose quadrature is too
    expensive (GPflow takes 20^L nodes for L latents per observation) or that have none (`Softmax`).
    The L latents are drawn jointly, so that outputs which share latents are correlated as they
    should be.

    :param num_samples: S, the number of draws per observation and evaluation. They come in pairs of
        opposite signs, which removes the noise of dE/dmean where the likelihood is nearly
        quadratic; if S is odd, one draw has no partner.
    :param seed: of the draws. The same seed and the same number of evaluations so far, `calls`,
        give the same draws, in a `tf.function` too (with jit_compile=True TensorFlow draws other
        numbers, again the same for the same seed). Checkpoints store `calls`, so that a resumed run
        continues with the same draws.
    :raises DataError: for less than one sample.

    Use it with `fit` or other stochastic optimizers; sweeps and L-BFGS need exact values.
    `model.expectations = None` returns
    to quadrature. Cost: S N evaluations of the log density, memory S N L. Example::

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
        """Standard normal numbers [S, N, L] for a mean [N, L]: new for each entry, at every call,
        and on each replica.
        """
        seed = replicas.fold_in_rank(
            tf.stack([tf.constant(self.seed, tf.int64), self.calls.assign_add(1)])
        )
        half = (self.num_samples + 1) // 2
        epsilon = tf.random.stateless_normal(
            tf.concat([[half], tf.shape(like)], axis=0), seed, dtype=like.dtype
        )
        return tf.concat([epsilon, -epsilon[: self.num_samples - half]], axis=0)
