"""The machine that a benchmark runs on, and the clock that it is measured by."""

from __future__ import annotations

__all__ = ["clock", "counts_processor_seconds", "machine", "training_clock"]

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from unittest import mock

_PACKAGES = (
    "gpflow",
    "tensorflow",
    "tensorflow-probability",
    "numpy",
    "gpytorch",
    "gpboost",
    "lightgbm",
    "gpflow_decoupled",
)


def machine() -> dict[str, str]:
    """What a reader must know to compare two reports: cores, threads and versions, but no host name
    and no path.
    """
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "all cores")
    return {
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "threads": threads,
        **versions,
    }


def counts_processor_seconds() -> bool:
    """Whether `clock` counts processor seconds, which it does where one thread does all the work
    (`--threads 1`).
    """
    return os.environ.get("TF_NUM_INTRAOP_THREADS") == "1"


def clock() -> float:
    """Seconds now. With one thread they are seconds of the processor, which other work on the
    machine does not change; with more threads they are wall-clock seconds."""
    return time.process_time() if counts_processor_seconds() else time.perf_counter()


@contextmanager
def training_clock() -> Iterator[None]:
    """With one thread, processor seconds take the place of the libraries' own clock, so that other
    work does not count.
    """
    with mock.patch.object(
        time, "perf_counter", time.process_time if counts_processor_seconds() else time.perf_counter
    ):
        yield
