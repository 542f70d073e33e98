"""How much of the package one call of `fit` runs through: what a newcomer has to read.

    python -m benchmarks.newcomer

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
    depth: int = 0
    """The largest number of package functions that are open at once."""

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
    found, depth = Count(), 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal depth
        if not frame.f_code.co_filename.startswith(root) or frame.f_code.co_name == "<module>":
            return None
        depth += 1
        found.functions.add(frame.f_code)
        found.depth = max(found.depth, depth)
        return inside

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal depth
        if event == "line":
            found.lines.add((frame.f_code.co_filename, frame.f_lineno))
        depth -= event == "return"
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
    model = gd.models.ODVGP(*parts, X[::8], X[::12])
    gd.fit(model, (X, np.sin(6.0 * X)), steps=2, progress=False)


if __name__ == "__main__":
    found = count(train)
    print(found)
    if "--modules" in sys.argv:
        print("\n".join(sorted(found.modules)))
