"""Milliseconds of calls that take turns, peak memory, and how fast both grow."""

from __future__ import annotations

__all__ = ["interleave", "median_ms", "peak_megabytes", "slopes"]

import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .machine import clock


def interleave(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    seconds: float,
    now: Callable[[], float] = clock,
) -> dict[str, np.ndarray]:
    """Milliseconds of a call of each function, [rounds] per label.

    The functions take turns, so that other work on the machine slows down all of them alike. The
    first call of each, which traces and compiles, is not timed.

    :param seconds: length of one timing of one function; it is called as often as fits.
    :param now: the clock.
    """
    repeats, times = {}, {label: np.zeros(rounds) for label in functions}
    for label, function in functions.items():
        function()  # traces
        repeats[label] = max(1, int(1e3 * seconds / _milliseconds(function, 1, now)))
    for index in range(rounds):
        for label, function in functions.items():
            times[label][index] = _milliseconds(function, repeats[label], now)
    return times


def median_ms(
    function: Callable[[], object], rounds: int, now: Callable[[], float] = clock
) -> float:
    """Median milliseconds of `rounds` calls, after a first call, which compiles."""
    function()
    return float(np.median([_milliseconds(function, 1, now) for _ in range(rounds)]))


def _milliseconds(function: Callable[[], object], repeats: int, now: Callable[[], float]) -> float:
    start = now()
    for _ in range(repeats):
        function()
    return 1e3 * (now() - start) / repeats


def peak_megabytes() -> float:
    """Peak resident memory of this process, MB."""
    try:
        # not getrusage: there a child starts with the peak of the parent that spawned it
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts in bytes


def slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """d log(y) / d log(x) between neighbours: 1 means that y grows linearly with x, 2
    quadratically.
    """
    return [float(slope) for slope in np.diff(np.log(y)) / np.diff(np.log(x))]
