"""The tighter bound."""

# In the classical bound q(f | u) is the prior, whose variance d_n = (K - Q)_nn costs a row w d_n /
# 2, w = 1 / s2, for Gaussian noise. A variance v_n d_n, v_n = 1 / (1 + w d_n), costs log(1 + w d_n)
# / 2, (N6), without change of q(u) or predictions (Titsias 2025, arXiv:2502.08730; Bui, Ashman &
# Turner 2025, arXiv:2502.04750).
#
# For another likelihood E log p(y_n | f_n) is taken at the variance less (1 - v_n) d_n, less the
# price (v_n - 1 - log v_n) / 2, (N6a), v_n = 1 / (1 + w_n d_n) with w_n = -2 dE / dvariance. It is
# a bound for all v_n in (0, 1] if the likelihood is log-concave: some joint Gaussian q(f | u) has
# no larger variances and no larger divergence, and smaller variances raise E log p.

from __future__ import annotations

__all__ = [
    "BOUNDS", "check_bound", "gains_are_constant", "left_variances", "row_gains",
    "shrunk_expectations",
]  # fmt: skip

from collections.abc import Callable

import tensorflow as tf
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood

from ..bases import Features, InducingBasis
from ..covariances.latents import prior_variance
from ..errors import ModelError, check_option
from ..likelihoods.facts import name_of
from ..likelihoods.parameters import single_noise_variance
from ..likelihoods.registry import is_log_concave
from ..linalg.whitening import squares_with_slope

BOUNDS = ("classical", "tight")
_ROUNDS = 3
"""Of two steps of the fixed point for v_n and Steffensen's extrapolation, which doubles the digits:
derivatives at constant v_n are right where it is the best. One step is exact for Gaussian noise.
"""
_LEAST = 1e-12
"""Of v_n."""


def check_bound(bound: str, likelihood: Likelihood, basis: InducingBasis, sampled: bool) -> None:
    """Refuse "tight" where it is no bound, and words other than "classical".

    :param sampled: the gains of rows depend on expectations that are estimated from draws.
    """
    check_option("bound", bound, BOUNDS)
    if not is_log_concave(likelihood):
        raise ModelError(
            f'bound="tight" is a bound for likelihoods that are known to be log-concave, and'
            f' {name_of(likelihood)} is not: use bound="classical"; or BernoulliLogit or'
            " BernoulliProbit for Bernoulli, Laplace for StudentT, CategoricalLogit for Softmax."
        )
    if sampled:
        raise ModelError(
            'bound="tight" needs the integrals of the likelihood, and expectations=MonteCarlo(...)'
            ' draws them: leave expectations out, or use bound="classical".'
        )
    if not basis.keeps_conditional:
        raise ModelError(
            f'bound="tight" needs a basis in which f given u has the covariance of the prior, and'
            f' {type(basis).__name__} does not declare one: use bound="classical", or set'
            " keeps_conditional = True in its class if that is so."
        )


def gains_are_constant(kernel: Kernel, likelihood: Likelihood) -> bool:
    """True if "tight" adds the same for every q(u): Gaussian noise of one variance, unmixed
    outputs.
    """
    mixed = isinstance(kernel, LinearCoregionalization)
    return single_noise_variance(likelihood) is not None and not mixed


def left_variances(
    kernel: Kernel,
    basis: InducingBasis,
    X: tf.Tensor,
    features: Features | None = None,
    tangent: tf.Tensor | None = None,
) -> tf.Tensor:
    """The prior variances d [N, L] that the points u of a basis leave at X [N, D], or [N, 1].

    Differentiable in kernel and points; cost as `InducingBasis.whitened_rows`.

    :param features: of the basis at X, if known.
    :param tangent: of the basis's state [G, M, M], where the features have no gradient in it.
    """
    left = prior_variance(kernel, X, full_cov=False)
    for A in basis.whitened_rows(kernel, X, features):
        left -= (
            tf.reduce_sum(tf.square(A), axis=-2)
            if tangent is None
            else squares_with_slope(A, tangent)
        )
    return tf.transpose(tf.maximum(left, 0.0))  # below zero by round-off alone


def row_gains(left: tf.Tensor, noise: tf.Tensor, latents: int) -> tf.Tensor:
    """Gain of (N6) over the classical bound of each row with Gaussian noise, [N] nats, at least 0.

    :param left: d, see `left_variances`.
    :param noise: the noise variance [].
    :param latents: L.
    :return: 1/2 sum over latents of w d - log(1 + w d).
    """
    excess = left / noise
    shared = tf.cast(latents / left.shape[1], left.dtype)
    return 0.5 * shared * tf.reduce_sum(excess - tf.math.log1p(excess), axis=1)


def shrunk_expectations(
    expected: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    mean: tf.Tensor,
    variance: tf.Tensor,
    left: tf.Tensor,
) -> tf.Tensor:
    """E log p(y_n | f_n) at the best smaller variances, less their price, (N6a): [N] nats.

    :param expected: E log p [N] of means and variances [N, L], for a log-concave likelihood.
    :param mean: of f under q [N, L].
    :param variance: of f under the classical q [N, L].
    :param left: d, see `left_variances`.
    :return: with seven evaluations of `expected` and six of its gradient more than the classical
        bound.
    """
    # Never below the classical E log p. v is constant in derivatives, which at its best value is no
    # approximation.
    moments, d = [tf.stop_gradient(part) for part in (mean, variance)], tf.stop_gradient(left)

    def step(v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            shrunk = moments[1] - (1.0 - v) * d
            tape.watch(shrunk)
            value = expected(moments[0], shrunk)
        slope = tape.gradient(value, shrunk, unconnected_gradients="zero")
        return value - _price(v), 1.0 / (1.0 + tf.maximum(-2.0 * slope, 0.0) * d)

    v = best_v = tf.ones_like(variance)
    best = None
    for _ in range(_ROUNDS):
        tried = [v]
        for _ in range(2):
            now, following = step(tried[-1])
            better = tf.ones_like(now, tf.bool) if best is None else now >= best
            best = now if best is None else tf.where(better, now, best)
            best_v = tf.where(better[:, None], tried[-1], best_v)
            tried.append(following)
        first, second = tried[1] - tried[0], tried[2] - tried[1]
        bend = second - first
        further = tried[0] - tf.square(first) / tf.where(bend == 0.0, tf.ones_like(bend), bend)
        usable = (bend != 0.0) & (further > _LEAST) & (further <= 1.0)
        v = tf.where(usable, further, tried[2])
    now = expected(moments[0], moments[1] - (1.0 - v) * d) - _price(v)
    best_v = tf.stop_gradient(tf.where((now >= best)[:, None], v, best_v))
    return expected(mean, variance - (1.0 - best_v) * left) - _price(best_v)


def _price(v: tf.Tensor) -> tf.Tensor:
    """(v - 1 - log v) / 2, summed over latents: [N]."""
    return 0.5 * tf.reduce_sum(v - 1.0 - tf.math.log(v), axis=1)
