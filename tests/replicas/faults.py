"""What two worker processes show beside whole runs: each takes the strategy and the file of its worker, and returns arrays."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.replicas import Group
from gpflow_decoupled.training import Checkpoints
from tests.replicas.cases import inputs, observations, orthogonal
from tests.training.problems import values

Found = dict[str, np.ndarray]
QUICK = {"batch_size": 20, "progress": False, "compile": False}


def _model(strategy: tf.distribute.Strategy) -> Any:
    with strategy.scope():
        return orthogonal()()


def _message(action: Callable[[], Any]) -> np.ndarray:
    """What an action is refused with."""
    try:
        action()
    except Exception as error:
        return np.array(f"{type(error).__name__}: {error}")
    return np.array("was not refused")


def group(strategy: tf.distribute.Strategy, path: str) -> Found:
    """What workers tell each other."""
    both = Group(strategy)
    own = 3.0 + both.number
    found = {
        "place": np.array([both.replicas, both.workers, both.number, both.is_first]),
        "gathered": both.gather(own),
        "rows": both.gather(np.array([own, -own])),
        "first": np.array(both.first(own)),
        "unlike": np.array(both.unlike_first(own)),
        "alike": np.array(both.unlike_first(1.0)),
        "of first": both.of_first(tf.constant([own, 2.0 * own], tf.float32)).numpy(),
        "together": np.array(both.together(lambda: own)),
    }

    def fails_on_second() -> None:
        if both.number == 1:
            raise ValueError("the labels of worker 1 are bad")

    found["failed"] = _message(lambda: both.together(fails_on_second))
    found["first fails"] = _message(lambda: both.on_first(lambda: {}["no such key"]))
    return found


def other_data(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A worker with other data, or with other options, ends both before the first step."""
    number, model = Group(strategy).number, _model(strategy)
    before, Y = values(model), observations("sine")
    data = _message(lambda: gd.fit(model, (inputs(), Y + number), steps=1, strategy=strategy, **QUICK))
    steps = _message(lambda: gd.fit(model, (inputs(), Y), steps=1 + number, strategy=strategy, **QUICK))
    same = all(np.array_equal(before[name], value) for name, value in values(model).items())
    return {"data": data, "steps": steps, "unchanged": np.array(same)}


def clock(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A limit of time: the second worker is asleep between its steps, and both take as many."""
    number, model = Group(strategy).number, _model(strategy)
    calls = gd.training.Callbacks([lambda *_: time.sleep(0.2 * number)], every=1)
    data = (inputs(), observations("sine"))
    result = gd.fit(model, data, seconds=1.0, callbacks=calls, strategy=strategy, **QUICK)
    return {"steps": np.array(result.steps), "last": result.history["seconds"], "q": model.basis.q_mu.numpy()}


def checkpoint(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A run that goes on from the state in a shared folder; folders that are not shared."""
    number, data = Group(strategy).number, (inputs(), observations("sine"))
    shared, own = Path(path).parent / "shared", Path(path).parent / f"own-{number}"

    def fit(folder: Path | None, steps: int) -> tuple[Any, np.ndarray]:
        model = _model(strategy)
        options = {} if folder is None else {"checkpoint": Checkpoints(folder, every=2)}
        schedule = gd.training.Schedule(anneal=0.0)
        result = gd.fit(model, data, steps=steps, strategy=strategy, schedule=schedule, **options, **QUICK)
        return values(model), result.history["elbo"]

    plain, trace = fit(None, 7)
    fit(shared, 4)
    resumed, resumed_trace = fit(shared, 7)
    same = all(np.array_equal(plain[name], resumed[name]) for name in plain)
    files = sorted(file.name for file in shared.iterdir())
    refused = _message(lambda: fit(own, 2))
    return {
        "same": np.array(same and np.array_equal(trace, resumed_trace)),
        "files": np.array(files),
        "refused": refused,
    }


def _long_run(strategy: tf.distribute.Strategy, folder: Path | None, killed: bool) -> tuple[Any, np.ndarray]:
    """12 steps, saved every 5; the second worker kills itself after step 8, or does not."""
    model, number = _model(strategy), Group(strategy).number

    def kill(step: int, *_: Any) -> None:
        if killed and number == 1 and step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {} if folder is None else {"checkpoint": Checkpoints(folder, every=5)}
    options |= {"callbacks": gd.training.Callbacks([kill], every=4), **QUICK}
    result = gd.fit(model, (inputs(), observations("sine")), steps=12, strategy=strategy, **options)
    return values(model), result.history["elbo"]


def killed(strategy: tf.distribute.Strategy, path: str) -> Found:
    """What the worker that is left is told, and after how many seconds."""
    began = time.monotonic()
    message = _message(lambda: _long_run(strategy, Path(path).parents[1] / "killed run", killed=True))
    np.savez(path, message=message, seconds=np.array(time.monotonic() - began))
    os._exit(0)  # what TensorFlow does at the end would wait for the other worker


def resumed(strategy: tf.distribute.Strategy, path: str) -> Found:
    """The killed run, started again, beside one that nothing has stopped."""
    model, trace = _long_run(strategy, Path(path).parents[1] / "killed run", killed=False)
    expected, expected_trace = _long_run(strategy, None, killed=False)
    same = all(np.array_equal(expected[name], value) for name, value in model.items())
    return {"same": np.array(same and np.array_equal(trace, expected_trace)), "steps": np.array(len(trace))}


FAULTS: dict[str, Callable[[tf.distribute.Strategy, str], Found]] = {
    "group": group,
    "other data": other_data,
    "clock": clock,
    "checkpoint": checkpoint,
    "killed": killed,
    "resumed": resumed,
}
