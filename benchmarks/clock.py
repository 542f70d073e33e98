"""The clock of the benchmarks."""

from __future__ import annotations

__all__ = ["clock"]

import os
import time


def clock() -> float:
    """Seconds of the processor on one thread, so that other work on the machine does not count; else of the wall."""
    return time.process_time() if os.environ.get("TF_NUM_INTRAOP_THREADS") == "1" else time.perf_counter()
