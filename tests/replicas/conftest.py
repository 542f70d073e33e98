"""What several replicas found, computed once for all tests that look at it.

Virtual devices and workers must exist before TensorFlow starts, so that they need processes of
their own. The first test that asks starts them, for all tests of the session; with several pytest
workers the others read what it has found."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 1800
Arrays = dict[str, np.ndarray]


def _names(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """The values of `case` and `probe` of all tests of this session that use a fixture."""
    found = []
    for item in request.session.items:
        if fixture in getattr(item, "fixturenames", ()):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            found += [str(parameters[key]) for key in ("case", "probe") if key in parameters]
    return list(dict.fromkeys(found))


def _once(folder: Path, name: str, start: Callable[[Path], None]) -> Path:
    """A folder that one process fills and all read; what it failed with is raised in all."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    place = folder / name
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            place.mkdir()
            start(place)
    return place


def _processes(commands: list[list[str]], place: Path) -> None:
    """Run commands at the same time, with what they print in files; a failure comes with the end of
    it.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_CONFIG", None)
    running = []
    for number, command in enumerate(commands):
        with open(place / f"output-{number}.txt", "w") as output:
            full = [sys.executable, "-m", *command]
            running.append(
                subprocess.Popen(full, cwd=ROOT, env=environment, stdout=output, stderr=output)
            )
    try:
        codes = [process.wait(SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
    (place / "codes.txt").write_text(" ".join(map(str, codes)))


def _load(place: Path, names: list[str]) -> list[Arrays]:
    if set((place / "codes.txt").read_text().split()) != {"0"}:
        outputs = [path.read_text()[-3000:] for path in sorted(place.glob("output-*.txt"))]
        pytest.fail("\n\n".join(outputs))
    found = []
    for name in names:
        with np.load(place / name) as file:
            found.append(dict(file))
    return found


@pytest.fixture(scope="session")
def virtual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """What two virtual CPUs of one process found, beside what one found."""

    def start(place: Path) -> None:
        _processes(
            [["tests.replicas.virtual", str(place / "found.npz"), *_names(request, "virtual")]],
            place,
        )

    return _load(_once(tmp_path_factory.getbasetemp(), "virtual", start), ["found.npz"])[0]


def two_workers(place: Path, names: list[str]) -> list[int]:
    """Start two worker processes that take on the cases of these names, and wait for them; their
    exit codes.
    """
    from gpflow_decoupled.launch import free_addresses

    place.mkdir(exist_ok=True)
    ports = [address.rsplit(":", 1)[1] for address in free_addresses(2)]
    files = [str(place / f"found-{number}.npz") for number in (0, 1)]
    _processes([["tests.replicas.worker", str(k), *ports, files[k], *names] for k in (0, 1)], place)
    return [int(code) for code in (place / "codes.txt").read_text().split()]


@pytest.fixture(scope="session")
def start_workers() -> Callable[[Path, list[str]], list[int]]:
    """See `two_workers`."""
    return two_workers


@pytest.fixture(scope="session")
def workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Arrays]:
    """What each of two worker processes found."""

    def start(place: Path) -> None:
        two_workers(place, _names(request, "workers"))

    return _load(
        _once(tmp_path_factory.getbasetemp(), "workers", start), ["found-0.npz", "found-1.npz"]
    )
