"""Two workers that train one model, of which one is killed at a random moment: started again they
end at the same bits.

The workers are children of a server process that has imported TensorFlow and computed nothing, as
in the part `kills`."""

from __future__ import annotations

__all__ = ["PART"]

import multiprocessing
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from gpflow_decoupled.launch import free_addresses

from ..outcome import Case, Outcome, Part
from ..worker_run import KINDS, TOLD, Loss, WorkersRun, execute_worker

NOTICED = 60.0
"""Seconds within which the worker that is left must have ended by itself, with an error that says
why.
"""
WHOLE = 240.0
"""Seconds for a run that nothing stops."""
WORKERS = 2


def run(case: Case) -> Outcome:
    """One kill, a second start from the shared folder, and the same run without a kill."""
    rng = case.generator()
    kind = KINDS[case.number % len(KINDS)]
    one = WorkersRun(
        kind,
        seed=int(rng.integers(1000)),
        steps=int(rng.integers(8, 15)),
        every=int(rng.integers(1, 5)),
    )
    loss = Loss(
        int(rng.integers(WORKERS)), int(rng.integers(one.steps)), float(rng.uniform(0.0, 0.3))
    )
    outcome = Outcome(f"{kind}, {one.steps} steps, a state every {one.every}; {loss}")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        shared = place / "shared"
        codes, seconds = _start(one, shared, loss, place / "killed")
        outcome.figures["seconds until the other worker ended"] = seconds
        other = 1 - loss.worker
        if codes[loss.worker] != -signal.SIGKILL:
            outcome.complaints.append(
                f"the worker that was to be killed ended with {codes[loss.worker]}"
            )
        if codes[other] != TOLD:
            words = _said(place / "killed" / f"{other}.npz")
            outcome.complaints.append(
                f"the other worker ended with {codes[other]} after {seconds:.0f} s: {words}"
            )
        found = {}
        for name, folder in (("resumed", shared), ("whole", None)):
            codes, _ = _start(one, folder, None, place / name)
            files = [place / name / f"{number}.npz" for number in range(WORKERS)]
            if codes != [0] * WORKERS:
                outcome.complaints.append(
                    f"the {name} run ended with {codes}: {[_said(file) for file in files]}"
                )
                return outcome
            found[name] = [_arrays(file) for file in files]
    outcome.complaints += _differences(found["whole"], found["resumed"])
    return outcome


def _differences(
    whole: list[dict[str, np.ndarray]], resumed: list[dict[str, np.ndarray]]
) -> list[str]:
    """What is not the same to the last bit on all workers of both runs."""
    complaints = []
    for who, arrays in [("worker 1 of the whole run", whole[1])] + [
        (f"worker {k}, resumed", resumed[k]) for k in (0, 1)
    ]:
        for name, expected in whole[0].items():
            if not np.array_equal(arrays[name], expected):
                complaints.append(
                    f"{name} of {who} is {arrays[name].ravel()[-3:]}, not {expected.ravel()[-3:]}"
                )
    return complaints


def _start(
    one: WorkersRun, folder: Path | None, loss: Loss | None, place: Path
) -> tuple[list[int], float]:
    """The exit codes of both workers, and seconds between the ends of the killed one and of the
    other.
    """
    place.mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["campaign.worker_run"])
    addresses = free_addresses(WORKERS)
    workers = [
        context.Process(
            target=execute_worker, args=(one, k, addresses, folder, loss, place / f"{k}.npz")
        )
        for k in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    killed = workers[0 if loss is None else loss.worker]
    killed.join(WHOLE)
    began = time.monotonic()
    for worker in workers:
        worker.join(max(0.0, began + NOTICED - time.monotonic()))
    seconds = time.monotonic() - began
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            worker.join()
    return [int(worker.exitcode or 0) for worker in workers], seconds


def _arrays(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def _said(file: Path) -> str:
    """What a worker wrote when it failed."""
    said = file.with_suffix(".txt")
    return said.read_text()[-600:] if said.is_file() else "nothing was said"


PART = Part(
    "lost_workers",
    "two workers, one of them killed at any moment and both started again",
    10,
    run,
    seconds=700,
)
