"""Fits in a loop, as in a benchmark, must not keep their models, data or optimizers.

TensorFlow keeps the graph of every function with a custom gradient in it, and TensorFlow
Probability's softplus, which holds each positive Parameter, is one: a compiled fit costs some 10 MB
that are never given back (plain GPflow: 20 MB)."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.training.batches import ArrayBatches
from gpflow_decoupled.training.stages.minibatches import Minibatches
from tests.training.problems import orthogonal, sine

STATUS = Path("/proc/self/statm")


def _resident_megabytes() -> float:
    gc.collect()
    return int(STATUS.read_text().split()[1]) * 4096 / 2**20


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
@pytest.mark.parametrize("compile, first, last, limit", [(False, 4, 10, 1.0), (True, 1, 4, 25.0)])
def test_fits_in_a_loop_keep_a_bounded_amount_of_memory(
    compile: bool, first: int, last: int, limit: float
) -> None:
    data = sine(100_000)  # 1.6 MB that must not stay
    sizes = []
    for _ in range(last):
        gd.fit(orthogonal(), data, steps=1, batch_size=20, progress=False, compile=compile)
        sizes.append(_resident_megabytes())
    assert (sizes[-1] - sizes[first - 1]) / (last - first) < limit, sizes
    left = [
        type(thing).__name__
        for thing in gc.get_objects()
        if isinstance(thing, (ArrayBatches, Minibatches))
    ]
    assert left == []
