"""The No-U-Turn sampler of TensorFlow Probability, for posteriors that approximations are compared
with.
"""

from __future__ import annotations

__all__ = ["nuts_draws"]

from collections.abc import Callable

import tensorflow as tf
import tensorflow_probability as tfp


def nuts_draws(
    log_joint: Callable[[tf.Tensor], tf.Tensor],
    start: tf.Tensor,
    draws: int,
    burn_in: int,
    seed: int,
    jit: bool,
) -> tf.Tensor:
    """Draws [draws, C, N] of C chains, compiled; their step size is adapted in four fifths of the
    burn-in.

    :param log_joint: from v [C, N] to log densities [C], up to a constant; v should be of about
        unit scale.
    :param start: of the chains [C, N].
    :param draws: of each chain.
    :param burn_in: draws before these, which are left out.
    :param seed: of the draws.
    :param jit: whether XLA compiles.
    """
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.NoUTurnSampler(
            log_joint, step_size=tf.constant(0.3, start.dtype), max_tree_depth=7
        ),
        num_adaptation_steps=int(0.8 * burn_in),
        target_accept_prob=tf.constant(0.8, start.dtype),
    )

    def chain() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            draws,
            start,
            kernel=kernel,
            num_burnin_steps=burn_in,
            trace_fn=None,
            seed=[seed, seed + 1],
        )

    return tf.function(chain, autograph=False, jit_compile=jit)()
