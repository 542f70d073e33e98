"""What several replicas found, computed once for all tests that look at it.

Virtual devices and workers must exist before TensorFlow starts, so that they need processes of
their own. The first test that asks starts all of them, for all tests of the session; with several
pytest workers the others read what it has found."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
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
    """Run commands at the same time, see `tests.replicas.processes`."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_CONFIG", None)
    words = [sys.executable, "-m", "tests.replicas.processes", str(place)]
    with open(place / "output.txt", "w") as output:
        process = subprocess.Popen(
            [*words, *map(json.dumps, commands)],
            cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # none of them is left
            os.killpg(process.pid, signal.SIGKILL)


def _load(place: Path, names: list[str]) -> list[Arrays]:
    codes = place / "codes.txt"
    if not codes.exists() or set(codes.read_text().split()) != {"0"}:
        outputs = [path.read_text()[-3000:] for path in sorted(place.glob("output*.txt"))]
        pytest.fail("\n\n".join(outputs))
    found = []
    for name in names:
        with np.load(place / name) as file:
            found.append(dict(file))
    return found


def _worker_commands(place: Path, names: list[str]) -> list[list[str]]:
    """Two processes that take on the cases of these names together."""
    from gpflow_decoupled.launch import free_addresses

    ports = [address.rsplit(":", 1)[1] for address in free_addresses(2)]
    files = [str(place / f"found-{number}.npz") for number in (0, 1)]
    return [["worker", str(k), *ports, files[k], *names] for k in (0, 1)]


@pytest.fixture(scope="session")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that this session asks of virtual devices and of workers."""

    def start(place: Path) -> None:
        on_devices, on_workers = (_names(request, name) for name in ("virtual", "workers"))
        commands = []
        if on_devices:
            commands.append(["virtual", str(place / "found.npz"), *on_devices])
        if on_workers:
            commands += _worker_commands(place, on_workers)
        _processes(commands, place)

    return _once(tmp_path_factory.getbasetemp(), "replicas", start)


@pytest.fixture(scope="session")
def virtual(found: Path) -> Arrays:
    """What two virtual CPUs of one process found, beside what one found."""
    return _load(found, ["found.npz"])[0]


@pytest.fixture(scope="session")
def workers(found: Path) -> list[Arrays]:
    """What each of two worker processes found."""
    return _load(found, ["found-0.npz", "found-1.npz"])


@pytest.fixture(scope="session")
def start_workers() -> Callable[[Path, list[str]], list[int]]:
    """Start two workers for the cases of these names, with files in a folder, and wait for them;
    their exit codes.
    """

    def start(place: Path, names: list[str]) -> list[int]:
        place.mkdir(exist_ok=True)
        _processes(_worker_commands(place, names), place)
        return [int(code) for code in (place / "codes.txt").read_text().split()]

    return start
