"""The collapsed bound and its gradient on all rows, in turn with those of GPflow's `SGPR`."""

from __future__ import annotations

__all__ = ["PART", "Turn", "measure"]

import argparse
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import collapsed_elbo

from ...harness.measuring import interleave
from ...harness.report import Section, Table
from ...harness.runner import Part

_DIMENSION, _NOISE = 8, 0.1
_OURS, _PEER = "gpflow_decoupled", "GPflow"


class Turn(NamedTuple):
    """One number of rows and of inducing points."""

    N: int
    M: int
    ms: float
    """of our bound and its gradient, median over rounds"""
    peer_ms: float
    """of those of `SGPR`"""
    ratio: float
    """median over rounds of the time of `SGPR` over ours in the same round"""
    difference: float
    """of the two gradients, relative to the largest entry"""


def measure(options: argparse.Namespace, N: int, M: int) -> list[Turn]:
    """Time both in turn, on rows of a smooth function with noise."""
    rng = np.random.default_rng(options.seed)
    X = rng.standard_normal([N, _DIMENSION])
    Y = np.sin(X.sum(1, keepdims=True)) + _NOISE**0.5 * rng.standard_normal([N, 1])
    kernels = [gpflow.kernels.Matern52(lengthscales=np.full(_DIMENSION, 3.0)) for _ in range(2)]
    ours = BasisGP(
        kernels[0], gpflow.likelihoods.Gaussian(_NOISE), CoupledBasis(X[:M].copy()), num_data=N
    )
    peer = gpflow.models.SGPR((X, Y), kernels[1], X[:M].copy(), noise_variance=_NOISE)
    data = tf.constant(X), tf.constant(Y)
    evaluations = {
        _OURS: _with_gradient(lambda: collapsed_elbo(ours, data), ours.basis.beta, ours),
        _PEER: _with_gradient(peer.elbo, peer.inducing_variable, peer),
    }
    left, right = (run() for run in evaluations.values())
    difference = max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in zip(left, right))
    times = interleave(evaluations, options.rounds, options.seconds)
    mine, theirs = times[_OURS], times[_PEER]
    return [
        Turn(
            N,
            M,
            *map(float, (np.median(mine), np.median(theirs), np.median(theirs / mine), difference)),
        )
    ]


def _with_gradient(
    bound: Callable[[], tf.Tensor], points: tf.Module, model: gpflow.models.GPModel
) -> Callable[[], list[np.ndarray]]:
    """The gradient of a compiled bound in kernel, noise and points."""
    parts = model.kernel, model.likelihood, points
    variables = [variable for part in parts for variable in part.trainable_variables]

    @tf.function(autograph=False)
    def compiled() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = bound()
        return tape.gradient(value, variables)

    return lambda: [gradient.numpy() for gradient in compiled()]


def section(turns: list[Turn], _: argparse.Namespace) -> Section:
    """A row per size."""
    header = ["N", "M", "ms", "SGPR, ms", "times faster", "largest difference"]
    rows = [
        [
            f"{turn.N:,}",
            str(turn.M),
            f"{turn.ms:.0f}",
            f"{turn.peer_ms:.0f}",
            f"{turn.ratio:.2f}",
            f"{turn.difference:.0e}",
        ]
        for turn in turns
    ]
    note = (
        f"Collapsed bound with its gradient in kernel, noise and points: {_DIMENSION} inputs,"
        " Matern-5/2, all rows at once."
    )
    return Section([Table("The collapsed bound on all rows", header, rows)], [], [note])


def _sizes(options: argparse.Namespace) -> list[tuple[int, int]]:
    return [(rows, size) for rows in options.collapsed_rows for size in options.sizes]


PART = Part(Turn, _sizes, measure, section)
