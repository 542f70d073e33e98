"""Scripts that run as several workers on this machine."""

from __future__ import annotations

__all__ = ["run_workers"]

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpflow_decoupled.launch import free_addresses, worker_environment

_ROOT = Path(__file__).parents[3]
_ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""The seconds of a worker are those of one core."""


def run_workers(
    script: Path, arguments: Sequence[object], count: int, seconds: float = 3600.0
) -> list[Any]:
    """Run a script as so many workers of one thread each, and return what the last line of each
    says in JSON.

    One worker has no TF_CONFIG, and takes no strategy.

    :raises RuntimeError: if one of them fails; the message ends with what it wrote to standard
    error."""
    words = [sys.executable, str(script), *map(str, arguments)]
    environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": str(_ROOT)}
    environment.pop("TF_CONFIG", None)
    with tempfile.TemporaryDirectory() as folder:
        running = []
        try:
            for number, own in enumerate(_environments(count, environment)):
                out, err = (open(Path(folder) / f"{name}-{number}", "w") for name in ("out", "err"))
                with out, err:
                    running.append(
                        subprocess.Popen(words, env=own, stdout=out, stderr=err, text=True)
                    )
            codes = [one.wait(seconds) for one in running]
        finally:
            for one in running:
                one.kill()
        said = [(Path(folder) / f"out-{number}").read_text() for number in range(count)]
        failed = [
            (Path(folder) / f"err-{number}").read_text()[-1500:]
            for number, code in enumerate(codes)
            if code
        ]
    if failed:
        raise RuntimeError(f"{script.name} failed:\n" + "\n".join(failed))
    return [json.loads(text.splitlines()[-1]) for text in said]


def _environments(count: int, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """That of each worker."""
    if count == 1:
        return [dict(environment)]
    addresses = free_addresses(count)
    return [worker_environment(number, addresses, environment) for number in range(count)]
