"""Seconds, milliseconds and megabytes."""

from __future__ import annotations

__all__ = ["in_a_process", "interleave", "peak_megabytes", "slopes"]

import multiprocessing
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .clock import clock

_LOADED = ["gpflow_decoupled"]


def interleave(
    functions: dict[str, Callable[[], Any]], rounds: int, seconds: float, now: Callable[[], float] = clock
) -> dict[str, np.ndarray]:
    """Milliseconds of a call by the clock `now`, [rounds] for each function, in turn: a busy machine slows all of them."""
    repeats, times = {}, {label: np.zeros(rounds) for label in functions}
    for label, function in functions.items():
        function()  # traces
        repeats[label] = max(1, int(1e3 * seconds / _milliseconds(function, 1, now)))
    for index in range(rounds):
        for label, function in functions.items():
            times[label][index] = _milliseconds(function, repeats[label], now)
    return times


def _milliseconds(function: Callable[[], Any], repeats: int, now: Callable[[], float]) -> float:
    start = now()
    for _ in range(repeats):
        function()
    return 1e3 * (now() - start) / repeats


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a process of its own, which has the libraries loaded and has not computed anything.

    Its memory is its own. What the function raises is raised here; RuntimeError if the process was killed, for its memory say.
    """
    # forked from one that has imported TensorFlow and started no thread: a tenth of a second, where an import takes six
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def peak_megabytes() -> float:
    """Peak resident memory of this process, MB."""
    try:
        # not getrusage: there a child starts with the peak of the parent that spawned it
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts in bytes


def slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """d log(y) / d log(x) between neighbours: 1 is linear, 2 quadratic."""
    return [float(slope) for slope in np.diff(np.log(y)) / np.diff(np.log(x))]
