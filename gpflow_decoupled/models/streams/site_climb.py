"""The sites of a new batch, with the old data's factor fixed."""

# They move by (C13), halved where the bound (C43) falls.

from __future__ import annotations

__all__ = [
    "Batch",
    "Climb",
    "Sites",
    "StreamModel",
    "bound",
    "climb",
    "factor_of",
    "no_sites",
    "sites_of",
]

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...bases import InducingBasis
from ...bases.parts.frame import Frame
from ...errors import NumericalError
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import symmetric_product
from ..monte_carlo import MonteCarlo
from .stream_memory import Quadratic, StreamMemory
from .stream_posterior import StreamBelief, best, divergence, expectation, moments

_ROUND_OFF = 1e3
"""Decrease of the bound that counts as round-off, in units of its last place."""
_SHORTEST = 2.0**-30  # share of a step at which a climb gives up


class StreamModel(Protocol):
    """The interface of a `BasisGP` that streams use."""

    kernel: Kernel
    likelihood: Likelihood
    basis: InducingBasis
    memory: StreamMemory | None
    expectations: MonteCarlo | None
    num_latent_gps: int

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P], shapes checked."""

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P], values checked too."""

    def variational_expectations(
        self, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
    ) -> tf.Tensor:
        """E_n [N] in nats, from moments [N, L]."""

    def log_prior_density(self) -> tf.Tensor:
        """The log prior density of the hyperparameters, a scalar."""


class Sites(NamedTuple):
    """nu [N, L] and tau [N, L] of exp(nu f - tau f^2 / 2)."""

    nu: tf.Tensor
    tau: tf.Tensor

    def towards(self, other: Sites, share: float) -> Sites:
        """(1 - share) of these sites plus share of the other, each [N, L], (C13)."""
        return Sites(*((1.0 - share) * mine + share * theirs for mine, theirs in zip(self, other)))


class Batch(NamedTuple):
    """New data, and their features in the frame."""

    X: tf.Tensor
    """[N, D]"""
    Y: tf.Tensor
    """[N, P]"""
    Phi: tf.Tensor
    """[G, M, N]"""


class _Point(NamedTuple):
    bound: float
    belief: StreamBelief
    sites: Sites
    target: Sites
    ok: bool


class Climb(NamedTuple):
    """The final sites of a batch."""

    bound: float
    belief: StreamBelief
    sites: Sites
    steps: int
    converged: bool
    shortened: int


def no_sites(rows: int, latents: int, dtype: tf.DType) -> Sites:
    """Uninformative sites, [N, L]."""
    return Sites(*(tf.zeros([rows, latents], dtype) for _ in range(2)))


def factor_of(batch: Batch, sites: Sites) -> Quadratic:
    """The sites [N, L] as one factor in the frame, constant zero: (C46); N M^2 per latent."""
    precision = symmetric_product(batch.Phi, tf.transpose(sites.tau))
    # (C46)
    return Quadratic(apply_per_latent(batch.Phi, sites.nu), precision, tf.zeros([], batch.X.dtype))


def bound(
    model: StreamModel, frame: Frame, batch: Batch, old: Quadratic, belief: StreamBelief
) -> tf.Tensor:
    """The bound (C43) in nats, a scalar, at any q.

    :param batch: X [N, D], Y [N, P] and features.
    """
    mean, variance = moments(frame, belief, model.kernel, batch.X, batch.Phi)
    new = tf.reduce_sum(model.variational_expectations(mean, variance, (batch.X, batch.Y)))
    return new + expectation(frame, belief, old) - divergence(frame, belief)  # (C43)


def sites_of(
    model: StreamModel, frame: Frame, batch: Batch, belief: StreamBelief
) -> tuple[Sites, tf.Tensor]:
    """Target (C13) of the sites at a q, each [N, L], and the sum of E_n in nats, a scalar."""
    mean, variance = moments(frame, belief, model.kernel, batch.X, batch.Phi)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = tf.reduce_sum(model.variational_expectations(mean, variance, (batch.X, batch.Y)))
    g, h = tape.gradient(expected, [mean, variance])
    return Sites(g - 2.0 * h * mean, -2.0 * h), expected  # (C13)


def climb(
    model: StreamModel,
    frame: Frame,
    batch: Batch,
    old: Quadratic,
    start: Sites,
    steps: int,
    tolerance: float,
) -> Climb:
    """Move a batch's sites until a step gains below `tolerance` nats; N M^2 + M^3 each.

    :param start: initial sites [N, L]; none for a batch without rows.
    """
    now = _point(model, frame, batch, old, start)
    if not now.ok:
        raise NumericalError(
            "The bound of the stream is not finite, or a precision is not positive definite, before"
            " the new data move q: scale the observations, or use fewer or better separated"
            " inducing points.",
            matrix="precision of q(u)",
        )
    share, shortened, taken, converged = 1.0, 0, 0, int(batch.X.shape[0]) == 0
    round_off = (
        _ROUND_OFF * float(np.finfo(old.theta.dtype.as_numpy_dtype).eps) * (1.0 + abs(now.bound))
    )
    while taken < steps and not converged and share > _SHORTEST:
        taken += 1
        then = _point(model, frame, batch, old, now.sites.towards(now.target, share))
        if not (then.ok and then.bound >= now.bound - tolerance - round_off):
            share, shortened = 0.5 * share, shortened + 1
            continue
        converged = then.bound - now.bound <= tolerance * share
        now, share = then, min(1.0, 2.0 * share)
    return Climb(now.bound, now.belief, now.sites, taken, converged, shortened)


def _point(model: StreamModel, frame: Frame, batch: Batch, old: Quadratic, sites: Sites) -> _Point:
    belief = best(frame, old.plus(factor_of(batch, sites)))
    held = expectation(frame, belief, old) - divergence(frame, belief)
    target, expected = sites, tf.zeros([], held.dtype)
    if int(batch.X.shape[0]) > 0:
        target, expected = sites_of(model, frame, batch, belief)
    value = held + expected  # (C43)
    finite = [belief.ok, *(tf.reduce_all(tf.math.is_finite(part)) for part in (value, *target))]
    return _Point(float(value), belief, sites, target, bool(tf.reduce_all(tf.stack(finite))))
