"""Where the draws of a sampled data term come from."""

from __future__ import annotations

__all__ = ["MonteCarlo"]

import tensorflow as tf

from ..errors import DataError


class MonteCarlo(tf.Module):
    """Stochastic gradient variational Bayes (Kingma & Welling 2014, arXiv:1312.6114): the data term from draws of f.

    `BasisGP(..., expectations=MonteCarlo(10))`, and likewise for the models that are made of it. Bound and gradients, dE/dmean
    and dE/dvar among them, become unbiased estimates from reparameterised draws f = m + sqrt(v) eps: for likelihoods whose
    quadrature is too dear (20^L nodes in GPflow, with L latents an observation) or that have none (`Softmax`). The draws of L
    latents are joint, so that outputs that share latents are correlated as they should be.

    :param num_samples: S, the draws an observation and evaluation. They come in pairs of opposite signs, which removes the
        noise of the mean where the likelihood is nearly quadratic; of an odd number one stays alone.
    :param seed: of the draws. `calls` counts evaluations: the same seed and count give the same draws, in a `tf.function` too
        (with jit_compile=True TensorFlow draws other numbers, and again the same for the same seed); checkpoints keep it,
        so that a resumed run goes on to the same trace.

    Use it with `fit` or other stochastic optimizers; sweeps and L-BFGS want exact values. `model.expectations = None` goes
    back to quadrature. Raises `DataError` for less than one sample. Cost: S N evaluations of the log density, memory S N L.
    """

    def __init__(self, num_samples: int = 10, seed: int = 0) -> None:
        super().__init__()
        if isinstance(num_samples, bool) or int(num_samples) != num_samples or num_samples < 1:
            raise DataError(f"num_samples={num_samples!r} must be a whole number, at least 1.")
        self.num_samples, self.seed = int(num_samples), seed
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False, name="calls")

    def draw(self, like: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers [S, N, L] for a mean [N, L]; independent for each entry, and new at every call."""
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.calls.assign_add(1)])
        half = (self.num_samples + 1) // 2
        epsilon = tf.random.stateless_normal(tf.concat([[half], tf.shape(like)], axis=0), seed, dtype=like.dtype)
        return tf.concat([epsilon, -epsilon[: self.num_samples - half]], axis=0)
