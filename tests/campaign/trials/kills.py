"""Runs of `fit` that are killed, at random moments and inside the writing of a state, and go on to
the same trace.

The runs are children of a server process that has imported TensorFlow and computed nothing, so that
each starts at once. A child is killed by its parent after a random time, or by itself at a random
access to its folder: Python reports every opening, renaming and removal of a file to an audit hook,
which kills at one of them or some milliseconds later, inside what TensorFlow writes by itself."""

from __future__ import annotations

__all__ = ["PART"]

import multiprocessing
import signal
import tempfile
from pathlib import Path

import numpy as np

from ..killed_run import ROUTES, Kill, Run, execute
from ..outcome import Case, Outcome, Part

SECONDS = 600.0
"""Some fifty times what a run needs alone; one that has not ended by then hangs."""


def run(case: Case) -> Outcome:
    """One to three kills of a run, and the run to its end."""
    rng = case.generator()
    route = ROUTES[case.number % len(ROUTES)]
    one = Run(
        route,
        seed=int(rng.integers(1000)),
        steps=int(rng.integers(8, 15)),
        every=int(rng.integers(1, 5)),
    )
    kills = [_draw_kill(rng) for _ in range(int(rng.integers(1, 4)))]
    outcome = Outcome(
        f"{route}, {one.steps} steps, a state every {one.every}; {', '.join(map(str, kills))}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        killed = 0
        for kill in kills:
            code = _child(one, folder, kill, None)
            killed += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                outcome.complaints.append(f"a run that was to be killed {_ending(code)}")
        traces = {}
        for name, where in (("resumed", folder), ("whole", None)):
            file = Path(temporary) / f"{name}.npz"
            code = _child(one, where, None, file)
            if code != 0 or not file.is_file():
                said = file.with_suffix(".txt")
                words = said.read_text() if said.is_file() else "nothing was said"
                outcome.complaints.append(f"the {name} run {_ending(code)}: {words}")
                return outcome
            with np.load(file) as arrays:
                traces[name] = dict(arrays)
        left = [path.name for path in folder.iterdir() if path.name.endswith((".part", "_temp"))]
    outcome.figures["kills"] = killed
    if left:
        outcome.complaints.append(f"left in the folder: {left}")
    for name, expected in traces["whole"].items():
        found = traces["resumed"][name]
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-8, atol=1e-10):
            outcome.complaints.append(
                f"{name} of the resumed run is {found.ravel()[-3:]}, and of a whole one"
                f" {expected.ravel()[-3:]}"
            )
    return outcome


def _draw_kill(rng: np.random.Generator) -> Kill:
    if rng.uniform() < 0.3:
        return Kill(after=float(rng.uniform(0.0, 3.0)))
    return Kill(
        access=int(rng.integers(1, 40)), delay=float(rng.choice([0.0, 0.0, rng.uniform(0.0, 0.03)]))
    )


def _ending(code: int | None) -> str:
    return f"had not ended after {SECONDS:.0f} s" if code is None else f"ended with {code}"


def _child(one: Run, folder: Path | None, kill: Kill | None, result: Path | None) -> int | None:
    """The exit code of a run in a process of its own; None if it had to be stopped."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.campaign.killed_run"])
    process = context.Process(target=execute, args=(one, folder, kill, result))
    process.start()
    after = None if kill is None else kill.after
    process.join(SECONDS if after is None else after)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    return None if late and after is None else int(process.exitcode or 0)


PART = Part(
    "kills", "runs killed up to three times, at any moment and while a state is written", 50, run
)
