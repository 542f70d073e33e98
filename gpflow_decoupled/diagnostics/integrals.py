"""Expected log densities to full accuracy: nodes are doubled and, where needed, panels halved."""

from __future__ import annotations

__all__ = ["accurate_expectations"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.polynomial.legendre import leggauss

from ..likelihoods import BernoulliLogit
from ..likelihoods.lookup import is_logit
from ..likelihoods.nodes import MOST_NODES, nodes_of, with_nodes

_SAME = 1e-6
"""Nats per observation: if twice the nodes change less, both are right."""
_REACH, _PANELS, _NODES = 8.5, 12, 12
"""Standard deviations covered, initial panels, and nodes per panel."""
_TOLERANCE, _HALVINGS = 1e-8, 40
"""Nats by which halving may change a panel, and most halvings."""
_MOST = 2**16
"""Panels evaluated at once."""


def accurate_expectations(
    likelihood: gl.Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor
) -> np.ndarray | None:
    """Return E log p(y_n | f_n) [N], f_n ~ N(mean_n, variance_n), in nats, at any widths.

    41 to 500 log densities per observation. X is [N, D], mean and variance [N, L], Y [N, P].

    :return: exact to 1e-6 where each latent has its labels; elsewhere with twice the nodes; None
        for a likelihood without nodes.
    """
    number = nodes_of(likelihood)
    if number is None:
        return None
    if is_logit(likelihood) and not isinstance(likelihood, BernoulliLogit):
        likelihood = BernoulliLogit()  # the same density without overflow
    other = 2 * number + 1 if number <= MOST_NODES // 2 else number // 2
    usual, finer = (
        one.variational_expectations(X, mean, variance, Y).numpy()
        for one in (likelihood, with_nodes(likelihood, other))
    )
    if not isinstance(likelihood, gl.ScalarLikelihood) or np.all(
        np.abs(finer - usual) <= _SAME * (1 + np.abs(usual))
    ):
        return finer if other > number else usual
    return _by_panels(likelihood, X.numpy(), mean.numpy(), np.sqrt(variance.numpy()), Y.numpy())


def _by_panels(
    likelihood: gl.ScalarLikelihood,
    X: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    Y: np.ndarray,
) -> np.ndarray:
    nodes, weights = leggauss(_NODES)

    def integrals(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        half = 0.5 * (high - low)[:, None]
        z = 0.5 * (high + low)[:, None] + half * nodes  # [P, Q]
        which = np.repeat(row, _NODES)
        f = mean[which] + deviation[which] * z.reshape(-1, 1).astype(mean.dtype)
        values = likelihood.log_prob(
            tf.constant(X[which]), tf.constant(f), tf.constant(Y[which])
        ).numpy()
        mass = half * weights * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        return np.sum(mass * values.reshape(z.shape), axis=1)

    def blocks(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        starts = range(0, len(row), _MOST)
        return np.concatenate(
            [integrals(*(part[i : i + _MOST] for part in (row, low, high))) for i in starts]
        )

    # 1) equal panels for every observation
    edges, N = np.linspace(-_REACH, _REACH, _PANELS + 1), len(mean)
    row, low, high = np.repeat(np.arange(N), _PANELS), np.tile(edges[:-1], N), np.tile(edges[1:], N)
    total, value = np.zeros(N), blocks(row, low, high)
    for _ in range(_HALVINGS):
        # 2) both halves of each; where their sum is the whole, or not finite, the panel is done
        middle = 0.5 * (low + high)
        left, right = blocks(row, low, middle), blocks(row, middle, high)
        with np.errstate(invalid="ignore"):
            open_ = np.abs(left + right - value) > _TOLERANCE
        np.add.at(total, row[~open_], (left + right)[~open_])
        # 3) on with the halves of the others
        row, value = np.tile(row[open_], 2), np.concatenate([left[open_], right[open_]])
        low, high = (
            np.concatenate([low[open_], middle[open_]]),
            np.concatenate([middle[open_], high[open_]]),
        )
        if len(row) == 0:
            break
    np.add.at(total, row, value)
    return total
