"""The observations that minibatches have visited."""

from __future__ import annotations

__all__ = ["Visited", "minibatch_goal", "visited_posterior"]

from typing import NamedTuple

import tensorflow as tf

from ...bases.site import SiteState
from ...bases.state_space import Chain, StateSpaceState
from ...models import CVIGP


class Visited(NamedTuple):
    """The posterior of all observations with sites, a minibatch [B] included."""

    known: tf.Tensor
    """Their indices [n]."""
    places: tf.Tensor
    """Places of the minibatch among them [B]."""
    K: tf.Tensor | Chain
    """Their prior, covariances [G, n, n] or a chain."""
    state: SiteState | StateSpaceState
    """Posterior of the n observations."""


def visited_posterior(model: CVIGP, rows: tf.Tensor) -> Visited:
    """The posterior of the visited observations (C21), `rows` [B] included; n^3 for n of them."""
    basis = model.basis
    nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
    visited = tf.reduce_any((nu != 0.0) | (tau != 0.0), axis=1)
    visited = tf.tensor_scatter_nd_update(visited, rows[:, None], tf.ones_like(rows, tf.bool))
    known = tf.where(visited)[:, 0]
    places = tf.gather(tf.cumsum(tf.cast(visited, tf.int32)) - 1, rows)
    K = basis.prior_of(model.kernel, known)
    return Visited(
        known, places, K, basis.state_at(K, tf.gather(nu, known), tf.gather(tau, known))
    )  # (C21)


def minibatch_goal(update: str, goal: tf.Tensor, old: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Targets [N, L] of all sites, from targets [B, L] of the minibatch `rows` [B].

    :param update: "local" leaves the other sites; "global" shrinks them, and scales up the rows'.
    """
    if update == "local":
        return tf.tensor_scatter_nd_update(old, rows[:, None], goal)  # (C20)
    scale = tf.cast(tf.shape(old)[0], goal.dtype) / tf.cast(tf.shape(rows)[0], goal.dtype)
    return tf.tensor_scatter_nd_add(tf.zeros_like(old), rows[:, None], scale * goal)  # (C19)
