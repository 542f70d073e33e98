"""The tighter bound for Gaussian noise: the variance of f given u shrinks where data are."""

# In the classical bound q(f | u) is the prior, whose variance d_n = (K - Q)_nn costs a row w d_n /
# 2, w = 1 / s2. A variance v_n d_n, v_n = 1 / (1 + w d_n), costs log(1 + w d_n) / 2, (N6), without
# change of q(u) or predictions (Titsias 2025, arXiv:2502.08730; Bui, Ashman & Turner 2025,
# arXiv:2502.04750).

from __future__ import annotations

__all__ = ["BOUNDS", "check_bound", "row_gains"]

import tensorflow as tf
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood

from ..bases import CoupledBasis, HybridBasis, InducingBasis
from ..bases.orthogonal_mean import OrthogonalMeanBasis
from ..bases.parts.optimum import project
from ..covariances.latents import prior_variance
from ..errors import ModelError, check_option
from ..likelihoods.parameters import single_noise_variance

BOUNDS = ("classical", "tight")
_BASES = (CoupledBasis, OrthogonalMeanBasis, HybridBasis)
"""Bases in which f given u has the prior's covariance."""


def check_bound(bound: str, kernel: Kernel, likelihood: Likelihood, basis: InducingBasis) -> None:
    """Refuse "tight" where (N6) is not the best bound of its kind.

    :raises UnknownOptionError: for another word.
    """
    check_option("bound", bound, BOUNDS)
    if bound == "classical":
        return
    if single_noise_variance(likelihood) is None or isinstance(kernel, LinearCoregionalization):
        raise ModelError(
            'bound="tight" is for Gaussian noise of one variance and outputs that are not mixed:'
            ' use bound="classical".'
        )
    if not isinstance(basis, _BASES):
        raise ModelError(
            f'bound="tight" needs a basis in which f given u has the covariance of the prior, and'
            f' {type(basis).__name__} is none: use bound="classical", or a CoupledBasis or'
            " OrthogonalBasis."
        )


def row_gains(
    kernel: Kernel, basis: InducingBasis, noise: tf.Tensor, X: tf.Tensor, latents: int
) -> tf.Tensor:
    """Gain of (N6) over the classical bound of each row, [N] nats, at least zero.

    :param kernel: the prior covariance.
    :param basis: its beta are the points u.
    :param noise: the noise variance [].
    :param X: inputs [N, D].
    :param latents: L.
    :return: 1/2 sum over latents of w d - log(1 + w d). Cost: M^3 / 3 + N M^2.
    """
    _, A = project(kernel, basis.beta, X)  # [G, M, N]
    left = prior_variance(kernel, X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=1)
    excess = tf.maximum(left, 0.0) / noise  # below zero by round-off alone
    shared = tf.cast(latents / excess.shape[0], X.dtype)
    return 0.5 * shared * tf.reduce_sum(excess - tf.math.log1p(excess), axis=0)
