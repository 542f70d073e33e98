"""Fits in a loop, as in a benchmark, must not keep their graphs, data or optimizers."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

import gpflow_decoupled as gd
from tests.training.problems import orthogonal, sine

STATUS = Path("/proc/self/statm")


def _resident_megabytes() -> float:
    gc.collect()
    return int(STATUS.read_text().split()[1]) * 4096 / 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_fits_in_a_loop_keep_a_bounded_amount_of_memory() -> None:
    """A graph that is kept costs 5 MB and more a fit, TensorFlow itself keeps well below 2 MB."""
    data = sine(2000)
    sizes = []
    for _ in range(15):
        gd.fit(orthogonal(), data, steps=2, batch_size=100, progress=False)
        sizes.append(_resident_megabytes())
    assert (sizes[-1] - sizes[4]) / 10 < 4.0, sizes
