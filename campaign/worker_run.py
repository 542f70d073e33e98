"""One of two workers that train together and of which one may not survive it; for the part
`lost_workers`.
"""

from __future__ import annotations

__all__ = ["KINDS", "TOLD", "Loss", "WorkersRun", "execute_worker"]

import json
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import WorkerError

KINDS = ("arrays", "labels", "shards", "natural mean", "SVGP")
"""What is trained: the same arrays on all workers, labels with compiled steps, a dataset for each
worker, other routes.
"""
TOLD = 3
"""Exit code of a worker that was told in plain words that another one has gone."""


@dataclass(frozen=True)
class WorkersRun:
    """What is run: a kind, the seed of its data, its steps, and after how many steps a state is
    saved.
    """

    kind: str
    seed: int
    steps: int
    every: int


@dataclass(frozen=True)
class Loss:
    """Which worker is killed, and when: `delay` seconds after a step; step 0 is the call of
    `fit`.
    """

    worker: int
    step: int
    delay: float

    def __str__(self) -> str:
        """In words."""
        return f"worker {self.worker} killed {1e3 * self.delay:.0f} ms after step {self.step}"


def execute_worker(
    one: WorkersRun,
    number: int,
    addresses: Sequence[str],
    folder: Path | None,
    loss: Loss | None,
    result: Path,
) -> None:
    """Run as worker `number`, and write the trace and all Parameters to `result`, or what went
    wrong beside it.
    """
    task = {"type": "worker", "index": number}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
    os.environ["TF_NUM_INTEROP_THREADS"] = "2"  # one would wait for itself in the sums over workers
    tf.get_logger().setLevel(logging.ERROR)  # it says in each step that eager sums are slow
    code = 1
    try:
        arrays = _run(
            one, number, folder, loss if loss is not None and loss.worker == number else None
        )
        np.savez(result, **arrays)
        code = 0
    except BaseException as error:
        result.with_suffix(".txt").write_text(traceback.format_exc()[-1500:])
        code = TOLD if isinstance(error, WorkerError) else 1
    finally:
        os._exit(code)  # what TensorFlow does at the end would wait for the other worker


def _run(
    one: WorkersRun, number: int, folder: Path | None, loss: Loss | None
) -> dict[str, np.ndarray]:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any operation
    rng = np.random.default_rng(one.seed)
    X = rng.uniform(size=(61, 1))
    Y = np.sin(6.0 * X) + 0.1 * rng.normal(size=X.shape)
    labels = one.kind == "labels"
    data = (X, (Y > 0).astype(float)) if labels else (X, Y)
    points = np.linspace(0.0, 1.0, 9)[:, None]
    with strategy.scope():
        kernel = gpflow.kernels.Matern52(lengthscales=0.3)
        likelihood = gpflow.likelihoods.Bernoulli() if labels else gpflow.likelihoods.Gaussian(0.1)
        if one.kind == "SVGP":
            model = gpflow.models.SVGP(kernel, likelihood, points[::2])
        else:
            model = gd.models.ODVGP(kernel, likelihood, points[1::2], points[::2], num_data=len(X))
    options: dict = {"steps": one.steps, "progress": False, "compile": labels, "strategy": strategy}
    if folder is not None:
        options["checkpoint"] = gd.training.Checkpoints(folder, every=one.every)
    if one.kind == "natural mean":
        options["mean_solver"] = "natural"
    if one.kind != "shards":
        options["batch_size"] = 20
    kill = _Kill(loss)
    kill(0)
    options["callbacks"] = gd.training.Callbacks(
        [kill], every=1
    )  # on all: workers must have the same options
    result = gd.fit(model, _shards(X, Y) if one.kind == "shards" else data, **options)
    found = {
        f"value {path}": np.asarray(p.numpy())
        for path, p in gpflow.utilities.parameter_dict(model).items()
    }
    return {"bounds": result.history["elbo"], "steps": np.array(result.steps), **found}


def _shards(
    X: np.ndarray, Y: np.ndarray
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    """The function of a worker's shard."""

    def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
        tf.random.set_seed(0)  # the global seed enters that of a shuffled dataset
        rows = tf.data.Dataset.from_tensor_slices((X, Y))
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        return rows.shuffle(len(X), seed=1).batch(8)

    return shard


class _Kill:
    """Kills this process some time after a step, or, without a `Loss`, never."""

    def __init__(self, loss: Loss | None) -> None:
        self.loss = loss

    def __call__(self, step: int, *_: object) -> None:
        if self.loss is not None and step == self.loss.step:
            threading.Timer(self.loss.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
