"""The training step at small sizes and with several latents, and what the loop of `fit` adds to it,
beside GPflow's.

GPflow's step is that of `speed`, and its loop is the plain one that a user writes around it:
`for _ in range(steps): step()`. Ours are the step of `fit` on its own minibatches, and `fit`
itself. All take turns in one process: the loop of GPflow runs inside of a callback of `fit`, so
that the two alternate as well."""

from __future__ import annotations

__all__ = ["KERNELS", "PART", "Turn", "measure"]

import argparse
import math
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled import bases, fit, models
from gpflow_decoupled.training import Callbacks

from ...harness.data import Data
from ...harness.machine import clock
from ...harness.measuring import interleave
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.gpflow_svgp import gpflow_steps
from ...libraries.models import Settings
from ...libraries.ours import fit_step

KERNELS = ("one", "shared", "separate")
"""One kernel without outputs of its own, `SharedIndependent`, and `SeparateIndependent`."""
_NUM_DATA, _DIMENSION = 20_000, 8
_OURS, _PEER = "gpflow_decoupled", "GPflow"


class Turn(NamedTuple):
    """One setting."""

    M: int
    batch: int
    L: int
    kernel: str
    ms: float
    """of our step, median over rounds"""
    peer_ms: float
    """of GPflow's"""
    ratio: float
    """median over rounds of GPflow's time over ours in the same round"""
    low: float
    """least of these ratios"""
    loop_ms: float
    """of a step of `fit`, all that it does between steps included; NaN where it is not measured"""
    loop_ratio: float
    """median over rounds of GPflow's loop over ours"""


def measure(options: argparse.Namespace, M: int, batch: int, L: int, kernel: str) -> list[Turn]:
    """Time the steps in turn, then the loops."""
    settings, data = Settings(batch_size=batch, seed=options.seed), _data(L, options.seed)
    peer = gpflow_steps(_model(_PEER, data, M, L, kernel), data, settings).both
    steps = {_OURS: fit_step(_model(_OURS, data, M, L, kernel), data, settings), _PEER: peer}
    times = interleave(steps, options.rounds, options.seconds)
    ratios, loops = times[_PEER] / times[_OURS], np.full([1, 2], math.nan)
    if options.loop_steps:
        loops = _loops(_model(_OURS, data, M, L, kernel), peer, data, settings, options)
    found = np.median(times[_OURS]), np.median(times[_PEER]), np.median(ratios), np.min(ratios)
    return [
        Turn(
            M,
            batch,
            L,
            kernel,
            *map(float, (*found, np.median(loops[:, 0]), np.median(loops[:, 1] / loops[:, 0]))),
        )
    ]


def _loops(model, peer, data: Data, settings: Settings, options: argparse.Namespace) -> np.ndarray:
    """Milliseconds per step of `fit` and of GPflow's loop [rounds, 2], which take turns every
    `loop_steps` steps.
    """
    count, found, start = options.loop_steps, [], math.nan

    def turn(*_: object) -> None:
        nonlocal start
        ours = clock() - start
        start = clock()
        for _ in range(count):
            peer()
        found.append((ours, clock() - start))
        start = clock()

    fit(
        model,
        (data.X_train, data.Y_train),
        steps=count * (options.rounds + 1),
        batch_size=settings.batch_size,
        progress=False,
        callbacks=Callbacks([turn], every=count),
        seed=settings.seed,
    )
    return 1e3 * np.array(found[1:]) / count


def _data(L: int, seed: int) -> Data:
    """Random inputs; the outputs are waves in random directions, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal([_NUM_DATA, _DIMENSION])
    Y = np.sin(X @ rng.standard_normal([_DIMENSION, L])) + 0.1 * rng.standard_normal([_NUM_DATA, L])
    return Data("random", X, Y, X[:1], Y[:1])


def _model(library: str, data: Data, M: int, L: int, kernel: str) -> gpflow.models.GPModel:
    """A model of either library on the same points, with the same kernel and q."""
    kernels = [
        gpflow.kernels.Matern52(lengthscales=np.ones(_DIMENSION))
        for _ in range(L if kernel == "separate" else 1)
    ]
    points = gpflow.inducing_variables.InducingPoints(data.X_train[:M].copy())
    if kernel == "one":
        prior = kernels[0]
    else:
        points = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
        prior = (
            gpflow.kernels.SeparateIndependent(kernels)
            if kernel == "separate"
            else gpflow.kernels.SharedIndependent(kernels[0], output_dim=L)
        )
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    if library == _PEER:
        return gpflow.models.SVGP(prior, likelihood, points, num_latent_gps=L, num_data=_NUM_DATA)
    return models.BasisGP(prior, likelihood, bases.CoupledBasis(points, L), num_data=_NUM_DATA)


def section(turns: list[Turn], _: argparse.Namespace) -> Section:
    """A row per setting, and ratios against the batch size where there is one latent."""
    header = [
        "M",
        "batch",
        "L",
        "kernel",
        "ms",
        "GPflow, ms",
        "times faster",
        "least",
        "ms in fit",
        "times faster",
    ]
    rows = [
        [
            str(t.M),
            str(t.batch),
            str(t.L),
            t.kernel,
            *map(_text, (t.ms, t.peer_ms, t.ratio, t.low, t.loop_ms, t.loop_ratio)),
        ]
        for t in turns
    ]
    note = (
        "Small sizes: the step of `fit` with sites held, and GPflow's natural gradient and Adam, in"
        " turn; ratios are medians over rounds, and the least of them. In fit: the whole loop, per"
        " step, beside a plain loop of GPflow's steps."
    )
    singles = [turn for turn in turns if turn.L == 1]
    series = [
        Series(
            f"M = {M}",
            [t.batch for t in singles if t.M == M],
            [t.ratio for t in singles if t.M == M],
        )
        for M in dict.fromkeys(turn.M for turn in singles)
    ]
    figures = [
        Figure(
            "steps_small",
            "Times faster than GPflow.",
            [Panel("", "batch", "times faster", series, log="x")],
            1,
        )
    ]
    return Section(
        [Table("Small sizes and several latents", header, rows)], figures if series else [], [note]
    )


def _text(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """Every size with every batch and one latent; then several latents, at the middle size and
    batch.
    """
    sizes, batches = options.small_sizes, options.batches
    several = [L for L in options.latents if L > 1]
    single = (
        [(M, batch, 1, "one") for M in sizes for batch in batches] if 1 in options.latents else []
    )
    middle = sizes[len(sizes) // 2], batches[len(batches) // 2]
    return [*single, *((*middle, L, kernel) for kernel in KERNELS[1:] for L in several)]


PART = Part(Turn, _pieces, measure, section)
