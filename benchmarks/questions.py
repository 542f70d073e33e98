"""Measure a page of the documentation anew in one go: `python -m benchmarks.questions --data DIR`.

Every command of the page is run as it stands there, one after the other, and the processor seconds
of each are printed. A command of a suite writes its report into a folder of its own, and after an
interruption the same call goes on where it stopped. Example::

    python -m benchmarks.questions --list
    python -m benchmarks.questions --data DIR --only rows evidence
"""

from __future__ import annotations

__all__ = ["commands", "prepared"]

import argparse
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path("docs/benchmarks.md")
_BLOCK = re.compile(r"```shell\n(.*?)```", re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The commands of the shell blocks of a page, in words, in their order."""
    blocks = [block.replace("\\\n", " ") for block in _BLOCK.findall(page)]
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


def prepared(command: list[str], data: str, out: Path) -> list[str]:
    """A command with its places: this Python, the folder of data, and that of the reports."""
    named = [data if word == "DIR" else word for word in command]
    places = ["--out", str(out), "--resume"] if "--suite" in named else []
    if "demo.photograph" in named:
        places = ["--output", str(out)]
    return [sys.executable, *named[1:], *places]


def _processor_seconds() -> float:
    """Seconds that all processes started here have taken, their own children included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the commands that the command line asks for; a failure stops none of the others."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--data", default="DIR", help="folder of NAME.npz files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/questions"))
    parser.add_argument("--only", nargs="+", help="words of commands, such as suites")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    options = parser.parse_args()
    failed = []
    for number, command in enumerate(commands(options.page.read_text(encoding="utf-8")), 1):
        if options.only and not {*options.only} & {*command}:
            continue
        out = options.out / str(number)
        call = prepared(command, options.data, out)
        print(f"{number}: {shlex.join(command)}", flush=True)
        if options.list:
            continue
        before = _processor_seconds()
        if subprocess.run(call).returncode:
            failed.append(str(number))
        print(f"{number}: {_processor_seconds() - before:.0f} s of processor", flush=True)
    print(f"{_processor_seconds():.0f} s of processor in all")
    if failed:
        raise SystemExit(f"these commands failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
