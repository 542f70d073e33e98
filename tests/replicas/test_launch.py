"""The launcher starts all workers, forwards what they print, ends all when one fails, and starts
them again if asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpflow_decoupled.launch import launch, main, worker_environment


def _script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(
        "import json, os, sys, time\nnumber ="
        f" json.loads(os.environ['TF_CONFIG'])['task']['index']\n{text}\n"
    )
    return str(path)


def test_environment_of_a_worker() -> None:
    addresses = ["localhost:1", "localhost:2"]
    found = worker_environment(
        1, addresses, {"A": "b", "OMP_NUM_THREADS": "7", "TF_CONFIG": "of something else"}
    )
    config = json.loads(found.pop("TF_CONFIG"))
    assert config == {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}
    cores = str(max(1, (os.cpu_count() or 1) // 2))
    expected = {
        "A": "b",
        "OMP_NUM_THREADS": "7",
        "TF_NUM_INTRAOP_THREADS": cores,
        "PYTHONUNBUFFERED": "1",
    }
    assert found == expected


def test_output_is_forwarded_with_the_number(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = _script(
        tmp_path, "print('hello', sys.argv[1]); print('no end', end='', file=sys.stderr)"
    )
    assert main(["--workers", "2", "--open-to-network", script, "--flag"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["[0] hello --flag", "[0] no end", "[1] hello --flag", "[1] no end"]


def test_all_end_when_one_fails(tmp_path: Path) -> None:
    script = _script(tmp_path, "time.sleep(60) if number == 0 else sys.exit(3)")
    began = time.monotonic()
    assert launch([script], 2, open_to_network=True, grace=0.5) == 3
    assert time.monotonic() - began < 20
    killed = _script(tmp_path, "os.kill(os.getpid(), 9) if number == 1 else None")
    assert launch([killed], 2, open_to_network=True, grace=0.5) == 137


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="by a signal of Linux")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_a_launcher_that_is_stopped(tmp_path: Path, stop: int) -> None:
    """SIGINT reaches the launcher alone, as from a scheduler; from a terminal all have it."""
    script = _script(
        tmp_path, f"open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w'); time.sleep(60)"
    )
    command = [sys.executable, "-m", "gpflow_decoupled.launch", "--workers", "2"]
    command += ["--open-to-network", script]
    launcher = subprocess.Popen(command, start_new_session=True)

    def workers() -> list[int]:
        return [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]

    _wait(lambda: len(workers()) == 2, 60)
    launcher.send_signal(stop)
    launcher.wait(20)
    _wait(lambda: not any(map(_alive, workers())), 5)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def _wait(done: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_all_are_started_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "started"
    script = _script(
        tmp_path,
        f"if number == 1 and not os.path.exists({str(marker)!r}): open({str(marker)!r}, 'w');"
        " sys.exit(1)",
    )
    assert launch([script], 2, open_to_network=True, restarts=2, grace=0.5) == 0
    assert capfd.readouterr().out.count("all workers are started again") == 1
    always = _script(tmp_path, "sys.exit(4)")
    assert launch([always], 1, open_to_network=True, restarts=1, grace=0.5) == 4


def test_workers_that_the_network_reaches_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workers", "1", "--restarts", "1", _script(tmp_path, "print('ran')")]
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    out, err = capfd.readouterr()
    assert "ran" not in out and "eth0" in err and "--open-to-network" in err
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo")])
    assert main(arguments) == 0  # nobody else reaches a host that has its loopback alone


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--workers", "0", __file__], "--workers must be at least 1"),
        (["--workers", "2", "--restarts", "-1", __file__], "--restarts at least 0"),
        (["--workers", "2", "no such file.py"], "no such file.py is no file"),
        (["script.py"], "--workers"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
