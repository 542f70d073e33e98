"""What two worker processes show beside whole runs: each takes the strategy and the file of its
worker, and returns arrays.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.optimizers import sweep
from gpflow_decoupled.replicas import Group
from gpflow_decoupled.training import Checkpoints
from tests.replicas.cases import inputs, observations, orthogonal
from tests.replicas.neighbours import (
    data_of as neighbours_data,
)
from tests.replicas.neighbours import (
    labels_model,
    neighbours,
    neighbours_faults,
    neighbours_labels,
    neighbours_model,
    neighbours_sites,
    site_faults,
    sites_model,
)
from tests.replicas.on_data import ON_DATA, found_alone, found_on
from tests.replicas.on_data_faults import data_faults
from tests.replicas.sweeps import data_of, sparse, sweep_alone, sweep_on
from tests.training.problems import values

Found = dict[str, np.ndarray]
NEIGHBOURS = {"neighbours": neighbours_model, "sites": sites_model, "labels": labels_model}
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

    asked: list[int] = []

    def of_rows(X: np.ndarray) -> list[np.ndarray]:
        asked.append(len(X))
        return [X[:, :1] ** 2, X[:, 0], np.einsum("ni,nj->nij", X, X)]

    rows = np.random.default_rng(5).normal(size=(7, 2))
    expected, shared = of_rows(rows), both.over_rows(of_rows, rows)
    found["over rows"] = np.array([np.array_equal(*pair) for pair in zip(expected, shared)])
    found["one row"] = np.array(
        [
            np.array_equal(*pair)
            for pair in zip(of_rows(rows[:1]), both.over_rows(of_rows, rows[:1]))
        ]
    )
    found["asked"] = np.array(asked)
    found["failed"] = _message(lambda: both.together(fails_on_second))
    found["first fails"] = _message(lambda: both.on_first(lambda: {}["no such key"]))
    return found


def other_data(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A worker with other data, options or starting values ends both before the first step."""
    number, model = Group(strategy).number, _model(strategy)
    before, Y = values(model), observations("sine")
    data = _message(
        lambda: gd.fit(model, (inputs(), Y + number), steps=1, strategy=strategy, **QUICK)
    )
    steps = _message(
        lambda: gd.fit(model, (inputs(), Y), steps=1 + number, strategy=strategy, **QUICK)
    )
    more = {"checkpoint": path} if number else {}
    options = _message(
        lambda: gd.fit(model, (inputs(), Y), steps=1, strategy=strategy, **more, **QUICK)
    )
    same = all(np.array_equal(before[name], value) for name, value in values(model).items())
    model.kernel.lengthscales.assign(0.3 + 0.1 * number)
    start = _message(lambda: gd.fit(model, (inputs(), Y), steps=1, strategy=strategy, **QUICK))
    found = {"data": data, "steps": steps, "options": options, "start": start}
    return {**found, "unchanged": np.array(same)}


def clock(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A limit of time: the second worker is asleep between its steps, and both take as many."""
    number, model = Group(strategy).number, _model(strategy)
    calls = gd.training.Callbacks([lambda *_: time.sleep(0.2 * number)], every=1)
    data = (inputs(), observations("sine"))
    result = gd.fit(model, data, seconds=1.0, callbacks=calls, strategy=strategy, **QUICK)
    return {
        "steps": np.array(result.steps),
        "last": result.history["seconds"],
        "q": model.basis.q_mu.numpy(),
    }


def checkpoint(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A run that goes on from the state in a shared folder; folders that are not shared."""
    number, data = Group(strategy).number, (inputs(), observations("sine"))
    shared, own = Path(path).parent / "shared", Path(path).parent / f"own-{number}"

    def fit(folder: Path | None, steps: int) -> tuple[Any, np.ndarray]:
        model = _model(strategy)
        options = {} if folder is None else {"checkpoint": Checkpoints(folder, every=2)}
        schedule = gd.training.Schedule(anneal=0.0)
        result = gd.fit(
            model, data, steps=steps, strategy=strategy, schedule=schedule, **options, **QUICK
        )
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


def _shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """The shard of a worker, in batches of 8 rows and a last one of 7 or 6, so that workers differ
    in size at times.
    """
    rows = tf.data.Dataset.from_tensor_slices((inputs(), observations("sine")))
    rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows.batch(8 + context.input_pipeline_id)


def _by_hand(steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """What both workers together see in each step: the batches of one dataset."""
    X, Y = inputs(), observations("sine")
    found = []
    streams = []
    for worker in (0, 1):
        own = [X[worker::2], Y[worker::2]]
        size = 8 + worker
        starts = range(0, len(own[0]), size)
        streams.append([tuple(part[start : start + size] for part in own) for start in starts])
    for step in range(steps):
        parts = [stream[step % len(stream)] for stream in streams]
        found.append(tuple(np.vstack(pair) for pair in zip(*parts)))
    return found


def dataset(strategy: tf.distribute.Strategy, path: str) -> Found:
    """Each worker reads its shard: the run of one process on the union of their batches, and the
    same after a restart.
    """
    folder, data = Path(path).parent / "dataset", (inputs(), observations("sine"))
    options: dict[str, Any] = {"progress": False, "schedule": gd.training.Schedule(anneal=0.0)}

    def fit(steps: int, **more: Any) -> tuple[Any, Any]:
        with strategy.scope():
            model = orthogonal(num_data=len(data[0]))()
        return model, gd.fit(model, _shard, steps=steps, strategy=strategy, **more, **options)

    alone = orthogonal(num_data=len(data[0]))()
    union = tf.data.Dataset.from_generator(
        lambda: iter(_by_hand(9)), output_signature=(tf.TensorSpec([None, 1], tf.float64),) * 2
    )
    expected = gd.fit(alone, union, steps=9, **options)
    model, result = fit(9, evaluation=data)
    fit(4, checkpoint=Checkpoints(folder, every=2), compile=False)
    resumed, again = fit(9, checkpoint=Checkpoints(folder, every=2), compile=False)
    score = gd.training.evaluation.held_out_metrics(model, data)
    found = {f"one {name}": value for name, value in values(alone).items()}
    found |= {f"two {name}": value for name, value in values(model).items()}
    found |= {f"resumed {name}": value for name, value in values(resumed).items()}
    scores = [result.history[name][-1] - score[name] for name in ("rmse", "log_density")]
    plain = _message(lambda: gd.fit(model, union, steps=1, strategy=strategy, **options))
    return found | {
        "elbo": np.stack([expected.history["elbo"], result.history["elbo"], again.history["elbo"]]),
        "scores": np.array(scores),
        "files": np.array(sorted(file.name for file in folder.iterdir())),
        "plain": plain,
    }


def bad_labels(strategy: tf.distribute.Strategy, path: str) -> Found:
    """A shard of the second worker with a label outside of the likelihood's support, in its third
    batch.
    """

    def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
        labels = observations("labels")
        labels[20] = 7.0 * context.input_pipeline_id
        return tf.data.Dataset.from_tensor_slices((inputs(), labels)).batch(10)

    with strategy.scope():
        model = orthogonal(gpflow.likelihoods.Bernoulli, num_data=61)()
    return {
        "message": _message(
            lambda: gd.fit(model, shard, steps=9, strategy=strategy, progress=False, compile=False)
        )
    }


def _long_run(
    strategy: tf.distribute.Strategy,
    folder: Path | None,
    name: str,
    killed: bool,
    reached: list[float],
) -> tuple[Any, np.ndarray]:
    """A run that is saved; the second worker kills itself after the last step but few, or does
    not. Then `reached` gets the time.
    """
    if name in NEIGHBOURS:
        with strategy.scope() if name == "neighbours" else nullcontext():
            model = NEIGHBOURS[name](neighbours_data(100))
        data, steps, every, last = None, 3, 1, 2
    else:
        model, data = _model(strategy), (inputs(), observations("sine"))
        steps, every, last = 12, 5, 8
    number = Group(strategy).number

    def kill(step: int, *_: Any) -> None:
        if killed and step == last:
            reached.append(time.monotonic())
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    options = {} if folder is None else {"checkpoint": Checkpoints(folder, every=every)}
    options |= {"callbacks": gd.training.Callbacks([kill], every=4), "progress": False}
    options |= {"compile": False} if data is None else QUICK
    result = gd.fit(model, data, steps=steps, strategy=strategy, **options)
    return values(model), result.history["elbo"]


def killed(strategy: tf.distribute.Strategy, path: str, name: str = "points") -> Found:
    """What the worker that is left is told, and how many seconds after the other has ended."""
    reached, folder = list[float](), Path(path).parents[1] / "killed run"
    message = _message(lambda: _long_run(strategy, folder, name, True, reached))
    np.savez(path, message=message, seconds=np.array(time.monotonic() - reached[0]))
    os._exit(0)  # what TensorFlow does at the end would wait for the other worker


def resumed(strategy: tf.distribute.Strategy, path: str, name: str = "points") -> Found:
    """The killed run, started again, beside one that nothing has stopped."""
    folder = Path(path).parents[1] / "killed run"
    model, trace = _long_run(strategy, folder, name, False, [])
    expected, expected_trace = _long_run(strategy, None, name, False, [])
    same = all(np.array_equal(expected[name], value) for name, value in model.items())
    return {
        "same": np.array(same and np.array_equal(trace, expected_trace)),
        "steps": np.array(len(trace)),
    }


class _Counted:
    """An array on disk that counts the rows that were read, those of one pass."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.rows = array, 0
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.rows += len(self.array[rows])
        return self.array[rows]


def swept(strategy: tf.distribute.Strategy, path: str, name: str = "SparseCVIGP") -> Found:
    """A sweep over shared arrays and over a shard for each worker; what one of them does wrong."""
    number = Group(strategy).number
    X, Y = data_of(name)

    def shard(labels: np.ndarray) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
        rows = tf.data.Dataset.from_tensor_slices((X, labels))
        return lambda context: rows.shard(2, context.input_pipeline_id).batch(
            5 + context.input_pipeline_id
        )

    found = {f"one/{key}": value for key, value in sweep_alone(name).items()}
    counted = _Counted(X)
    found |= {
        f"arrays/{key}": value for key, value in sweep_on(strategy, name, (counted, Y)).items()
    }
    found |= {f"shards/{key}": value for key, value in sweep_on(strategy, name, shard(Y)).items()}
    with strategy.scope():
        model = sparse()
    passes = np.sum(np.isfinite(found["arrays/elbo"])) + 1  # the first one reads q as it is
    quick = {"strategy": strategy, "compile": False, "passes": 2}
    bad = Y.copy()
    bad[60 - number] = 7.0 * number
    refused = {
        "labels": lambda: sweep(model, shard(bad), **quick),
        "block": lambda: sweep(model, (X, Y), **{**quick, "passes": 2 + number}),
        "rows": lambda: sweep(model, (X[number:], Y[number:]), **quick),
        "dataset": lambda: sweep(
            model, tf.data.Dataset.from_tensor_slices((X, Y)).batch(9), **quick
        ),
    }
    told = {f"refused {what}": _message(action) for what, action in refused.items()}
    model.kernel.lengthscales.assign(0.3 + 0.1 * number)
    told["refused kernel"] = _message(lambda: sweep(model, (X, Y), **quick))
    return {**found, **told, "read": np.array([counted.rows // passes])}


def on_data(strategy: tf.distribute.Strategy, path: str, name: str) -> Found:
    """A mean on all data, found by this worker alone and by both."""
    found = {f"one/{key}": value for key, value in found_alone(name).items()}
    return found | {f"two/{key}": value for key, value in found_on(strategy, name).items()}


FAULTS: dict[str, Callable[[tf.distribute.Strategy, str], Found]] = {
    "group": group,
    "other data": other_data,
    "clock": clock,
    "checkpoint": checkpoint,
    "dataset": dataset,
    "bad labels": bad_labels,
    "killed": killed,
    "resumed": resumed,
    "killed neighbours": partial(killed, name="neighbours"),
    "resumed neighbours": partial(resumed, name="neighbours"),
    "killed sites": partial(killed, name="sites"),
    "resumed sites": partial(resumed, name="sites"),
    "killed labels": partial(killed, name="labels"),
    "resumed labels": partial(resumed, name="labels"),
    "neighbours": neighbours,
    "neighbours few": partial(neighbours, rows=100, compile=False),
    "neighbours faults": neighbours_faults,
    "neighbours labels": neighbours_labels,
    "neighbours sites": neighbours_sites,
    "site faults": site_faults,
    "sweep": swept,
    "sweep compiled": partial(swept, name="compiled"),
    "on data faults": data_faults,
    **{f"on data {name}": partial(on_data, name=name) for name in ON_DATA},
}
