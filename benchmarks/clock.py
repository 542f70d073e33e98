"""The clock of the benchmarks."""

from __future__ import annotations

__all__ = ["clock", "counts_processor_seconds"]

import os
import time


def counts_processor_seconds() -> bool:
    """Whether one thread does all the work."""
    return os.environ.get("TF_NUM_INTRAOP_THREADS") == "1"


def clock() -> float:
    """Seconds of the processor on one thread, so that other work on the machine does not count; else of the wall."""
    return time.process_time() if counts_processor_seconds() else time.perf_counter()
