"""Work in a process of its own: for its memory, for its start-up, or because it needs another
Python.
"""

from __future__ import annotations

__all__ = ["in_a_process", "run_script"]

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

_LOADED = ["gpflow_decoupled"]
_ROOT = Path(__file__).parents[2]


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, computed in a process of its own, so that its peak memory is that of
    the function.

    The process has the libraries loaded and has computed nothing yet.

    :raises RuntimeError: if the process is killed, for example because memory ran out. What
        `function` raises is raised here.
    """
    # The process is forked from a server that has imported TensorFlow and has started no thread
    # yet. That takes a tenth of a second, while an import takes six.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def run_script(
    script: Path,
    arguments: Sequence[str],
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run a script in a fresh Python, and return what its last line of output says in JSON.

    The script may import modules of `benchmarks` that need nothing but what its Python has
    installed.

    :param python: path of the interpreter.
    :param environment: environment variables to set besides those of this process.
    :raises RuntimeError: if the script fails; the message ends with what it wrote to standard
    error."""
    known = {**os.environ, **(environment or {})}
    # another interpreter must not see packages of this one, so that its path is the root of the
    # repository alone
    paths = [
        str(_ROOT),
        *(
            [os.environ["PYTHONPATH"]]
            if python == sys.executable and "PYTHONPATH" in os.environ
            else []
        ),
    ]
    known["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [python, str(script), *arguments], env=known, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
