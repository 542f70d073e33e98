"""Processes that the tests of replicas look at, started by `python -m tests.replicas.processes
FOLDER COMMAND...`; a command is a JSON list: "virtual" or "worker" and its arguments.

Importing TensorFlow, GPflow and the package takes seven seconds of a processor. One process does
that and then forks once for each command. It runs no operation itself: TensorFlow's devices and
threads do not survive a fork, and each command sets up its own."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from tests import round_off


def fork(action: Callable[[], None], output: Path) -> int:
    """Run `action` in a process of its own, which prints into a file; the number of the process."""
    process = os.fork()
    if process:
        return process
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:  # without the clean-up of the process from which this one was forked
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(folder: Path, commands: list[list[str]]) -> None:
    """Start all commands at the same time, and write their exit codes when the last one ends."""
    from tests.replicas import virtual, worker

    kinds = {"virtual": virtual.main, "worker": worker.main}
    running = [
        fork(lambda words=words: kinds[words[0]](*words[1:]), folder / f"output-{number}.txt")
        for number, words in enumerate(commands)
    ]
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in running]
    (folder / "codes.txt").write_text(" ".join(map(str, codes)))


if __name__ == "__main__":
    if round_off.VARIABLE in os.environ:  # the data that the test's own process has
        round_off.pytest_configure()
    main(Path(sys.argv[1]), [json.loads(command) for command in sys.argv[2:]])
