"""How much of the package one call of `fit` runs through: what a newcomer has to read.

    python -m benchmarks.newcomer [--modules] [--chain]

Counts, with `sys.settrace` and for the code of the package alone, while an `ODVGP` is built and
trained for two steps: modules, functions and lines that are entered, and how deep calls are nested.
"""

from __future__ import annotations

__all__ = ["Count", "count"]

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gpflow
import numpy as np

import gpflow_decoupled as gd

ROOT = str(Path(gd.__file__).parent)


@dataclass
class Count:
    """The package's code that was entered."""

    functions: set[CodeType] = field(default_factory=set)
    lines: set[tuple[str, int]] = field(default_factory=set)
    chain: list[CodeType] = field(default_factory=list)
    """The deepest chain of package functions that are open at once, outermost first."""

    @property
    def depth(self) -> int:
        """The length of the chain."""
        return len(self.chain)

    @property
    def modules(self) -> set[str]:
        """The files of the functions."""
        return {code.co_filename for code in self.functions}

    def __str__(self) -> str:
        """One line."""
        counts = len(self.modules), len(self.functions), len(self.lines), self.depth
        return "{} modules, {} functions, {:,} lines, call depth {}".format(*counts)


def count(task: Callable[[], object], root: str = ROOT) -> Count:
    """Run a task, and count the code below a folder that it enters.

    :param task: a function without arguments.
    :param root: the folder.
    """
    found, open_now = Count(), list[CodeType]()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(root) or frame.f_code.co_name == "<module>":
            return None
        open_now.append(frame.f_code)
        found.functions.add(frame.f_code)
        if len(open_now) > found.depth:
            found.chain = list(open_now)
        return inside

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found.lines.add((frame.f_code.co_filename, frame.f_lineno))
        if event == "return":
            open_now.pop()
        return inside

    before = sys.gettrace()
    threading.settrace(trace)  # TensorFlow traces some functions in threads
    sys.settrace(trace)
    try:
        task()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return found


def train() -> None:
    """Build an `ODVGP`, and train it for two steps."""
    X = np.linspace(0.0, 1.0, 60)[:, None]
    parts = gpflow.kernels.SquaredExponential(lengthscales=0.3), gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.ODVGP(*parts, X[::8], X[1::12])
    gd.fit(model, (X, np.sin(6.0 * X)), steps=2, progress=False)


def _by_module(found: Count) -> str:
    rows = []
    for path in sorted(found.modules):
        lines = sum(file == path for file, _ in found.lines)
        names = sorted(one.co_name for one in found.functions if one.co_filename == path)
        rows.append(f"{Path(path).relative_to(ROOT)}: {lines} lines, {', '.join(names)}")
    return "\n".join(rows)


def _by_depth(found: Count) -> str:
    return "\n".join(
        f"{depth:3} {Path(one.co_filename).relative_to(ROOT)}:{one.co_firstlineno} {one.co_name}"
        for depth, one in enumerate(found.chain, 1)
    )


if __name__ == "__main__":
    found = count(train)
    print(found)
    if "--modules" in sys.argv:
        print(_by_module(found))
    if "--chain" in sys.argv:
        print(_by_depth(found))
