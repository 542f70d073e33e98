"""Steps of a `GMRF`, in SciPy."""

from __future__ import annotations

__all__ = ["field_probe"]

from collections.abc import Callable

import tensorflow as tf

from ...models import GMRF
from .site_runs import Probe

Targets = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""g, h and the mean of eta, [N, 1] each -> nu, tau and the number of clipped precisions."""


def field_probe(
    targets: Targets, model: GMRF
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Probe]:
    """Return a function (nu, tau [N, 1], seed [2]) -> the bound and the next targets."""

    def probe(nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
        state, dtype = model.state_at(nu, tau), model.float_type
        if state is None:
            return Probe(
                tf.constant(float("nan"), dtype), tf.constant(False), nu, tau, tf.constant(0)
            )
        mean, variance = (tf.constant(part, dtype) for part in (state.mean, state.variance))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            expected = tf.reduce_sum(model.expected_log_densities(mean, variance))
        g, h = tape.gradient(expected, [mean, variance])
        elbo = expected - state.divergence
        return Probe(elbo, tf.math.is_finite(elbo), *targets(g, h, mean))

    return probe
