"""Start a script as several workers on this host: `python -m gpflow_decoupled.launch --workers 2
--open-to-network script.py`.

TensorFlow's workers listen on every interface of the host and run the graphs that anybody sends.
"""

# TF_CONFIG names the others, as `tf.distribute.MultiWorkerMirroredStrategy` needs.

from __future__ import annotations

__all__ = ["free_addresses", "launch", "main", "worker_environment"]

import argparse
import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from .errors import DataError

_POLL = 0.2
"""Seconds between two looks at the workers."""
_INTERRUPTED = 5.0
"""Seconds for workers to end after Ctrl-C, which a terminal sends to them too."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def launch(
    command: Sequence[str],
    workers: int,
    restarts: int = 0,
    grace: float = 60.0,
    open_to_network: bool = False,
) -> int:
    """Run a Python script on several workers, prefixing their output by their numbers.

    When one fails, the others are ended after `grace`.

    :param command: the script and its arguments.
    :param workers: the number of processes; at least 1.
    :param restarts: of all workers after a failure, for a `fit` with a checkpoint.
    :param grace: seconds in which the others may end by themselves.
    :param open_to_network: True says that whoever reaches a port of this host may run programs as
        you; False refuses to start where the host has an interface beside the loopback.
    :return: 0 if all ended well, else the shell's exit code of the first failed worker.

    Example::

        launch(["train.py", "--steps", "1000"], workers=2, restarts=3, open_to_network=True)
    """
    if not open_to_network:
        _check_loopback_alone(command, workers)
    code = _run(command, workers, grace)
    while code not in (0, 130) and restarts > 0:  # 130: Ctrl-C
        restarts -= 1
        print(
            f"[launch] exit code {code}: all workers are started again; {restarts} restarts are"
            " left",
            flush=True,
        )
        code = _run(command, workers, grace)
    return code


def worker_environment(
    number: int, addresses: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return a worker's environment: TF_CONFIG, and its share of the cores unless threads are set.

    :param number: of this worker, 0, 1, ...
    :param addresses: of all workers, as "host:port".
    :param environment: of the parent process.
    """
    config = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": number}}
    threads = str(max(1, (os.cpu_count() or 1) // len(addresses)))
    defaults = {
        "TF_NUM_INTRAOP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",
    }
    return {**defaults, **environment, "TF_CONFIG": json.dumps(config)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m gpflow_decoupled.launch", description=__doc__)
    parser.add_argument("--workers", type=int, required=True, help="how many processes")
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        help="how often to start all again when one fails (default 0)",
    )
    parser.add_argument(
        "--open-to-network",
        action="store_true",
        help="start although whoever reaches a port of this host may then run programs as you",
    )
    parser.add_argument("script", help="a Python file, which all workers run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.restarts < 0:
        parser.error("--workers must be at least 1 and --restarts at least 0")
    if not os.path.isfile(options.script):
        parser.error(f"{options.script} is no file; name the script that all workers run")
    command = [options.script, *options.arguments]
    open_to_network = options.open_to_network
    try:
        return launch(command, options.workers, options.restarts, open_to_network=open_to_network)
    except DataError as error:
        parser.error(str(error))


def _check_loopback_alone(command: Sequence[str], workers: int) -> None:
    # TensorFlow's server has no option for one interface
    others = [name for _, name in socket.if_nameindex() if name not in ("lo", "lo0")]
    if others:
        again = f"python -m gpflow_decoupled.launch --workers {workers} {shlex.join(command)}"
        raise DataError(
            "TensorFlow's workers listen on every interface of this host"
            f" ({', '.join(others)}), and run what anybody sends to their ports. On Linux start"
            " them in a network name space of their own, as unshare --map-root-user --net sh -c"
            f" {shlex.quote('ip link set lo up && ' + again)}; or, behind a firewall, pass"
            " --open-to-network (launch: open_to_network=True)."
        )


def _run(command: Sequence[str], workers: int, grace: float) -> int:
    addresses = free_addresses(workers)
    processes: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    code = 0
    try:  # from the first worker on: an interrupt may come before the last one
        for k in range(workers):
            process = _start(command, worker_environment(k, addresses, os.environ))
            processes.append(process)
            readers.append(threading.Thread(target=_forward, args=(k, process), daemon=True))
            readers[-1].start()
        code = _first_failure(processes)
    except KeyboardInterrupt:  # the workers of a terminal have had it too
        code = 130
    finally:
        _end(processes, min(grace, _INTERRUPTED) if code == 130 else grace if code else 0.0)
        for reader in readers:
            reader.join()
    return code


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_dying_with(os.getpid()),
    )


def _dying_with(parent: int) -> Callable[[], None] | None:
    # A killed launcher cannot end its workers, which would hold their devices for ever.
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)  # found here: after the fork nothing may be imported

    def before_start() -> None:
        library.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended meanwhile
            os._exit(1)

    return before_start


def _forward(number: int, process: subprocess.Popen[str]) -> None:
    if process.stdout is None:
        return
    with process.stdout as lines:
        for line in lines:
            print(f"[{number}] {line}", end="" if line.endswith("\n") else "\n", flush=True)


def _first_failure(processes: Sequence[subprocess.Popen[str]]) -> int:
    while True:
        codes = [process.poll() for process in processes]
        for code in codes:
            if code:
                return code if code > 0 else 128 - code
        if None not in codes:
            return 0
        time.sleep(_POLL)


def _end(processes: Sequence[subprocess.Popen[str]], grace: float) -> None:
    for seconds, stop in ((grace, subprocess.Popen.terminate), (5.0, subprocess.Popen.kill)):
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(process.poll() is None for process in processes):
            time.sleep(_POLL)
        for process in processes:
            if process.poll() is None:
                stop(process)


def free_addresses(count: int) -> list[str]:
    """Distinct free addresses "localhost:port" of this host."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("localhost", 0))
        return [f"localhost:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers are ended too
    sys.exit(main())
