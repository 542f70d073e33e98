"""Timing in turn, slopes, and peak memory."""

from __future__ import annotations

import resource
import sys

import numpy as np

from benchmarks.harness.measuring import interleave, median_ms, peak_megabytes, slopes


def test_slopes_and_memory() -> None:
    sizes = np.array([10, 100, 1000])
    np.testing.assert_allclose(slopes(sizes, 2.0 * sizes), 1.0)
    np.testing.assert_allclose(slopes(sizes, 1e-3 * sizes**2), 2.0)
    unit = (
        2**10 if sys.platform == "linux" else 2**20
    )  # of ru_maxrss, which may include the parent's peak
    kernel = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    assert 0.2 * kernel < peak_megabytes() < 1.05 * kernel


def test_timing_is_interleaved() -> None:
    calls: list[str] = []
    times = interleave(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3, seconds=0.0
    )
    assert {label: len(values) for label, values in times.items()} == {"a": 3, "b": 3}
    assert "".join(calls[4:]) == "ababab"


def test_median_leaves_the_first_call_out() -> None:
    """A made-up clock: the calls take 9, 1, 5 and 2 seconds, of which the first compiles."""
    now, seconds = [0.0], iter([9.0, 1.0, 5.0, 2.0])

    def work() -> None:
        now[0] += next(seconds)

    assert median_ms(work, 3, lambda: now[0]) == 2000.0
