"""The worker processes that train one model."""

from __future__ import annotations

__all__ = ["Group", "dataset_of", "starts_passes"]

import inspect
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import numpy as np
import tensorflow as tf

from ..errors import DataError, WorkerError
from .sums import note_message, rank, total

Result = TypeVar("Result")

_TEXT = 1000
"""Bytes of an error message that are sent to the other workers."""
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
"""TensorFlow's errors in a worker when another has gone."""


class Group:
    """All replicas of a strategy outside of `strategy.run`, or this process alone.

    A worker is a process with replicas. All workers must send messages in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        self.strategy = strategy
        self.replicas = 1 if strategy is None else int(strategy.num_replicas_in_sync)
        self.workers, self.number = _place(strategy)
        signature = [tf.TensorSpec([None], tf.float64)]  # traced once, for vectors of any length
        self._summed: Callable[[tf.Tensor], tf.Tensor] = tf.function(
            self._sum, signature, autograph=False
        )

    @property
    def is_first(self) -> bool:
        """True for the worker that writes files and shows progress."""
        return self.number == 0

    @property
    def own(self) -> list[tuple[int, str | None]]:
        """Numbers and devices of this process's replicas; the device of a lone replica is None."""
        each = self.replicas // self.workers
        devices = (
            [None]
            if self.strategy is None or each == 1
            else list(self.strategy.extended.worker_devices)
        )
        return [(self.number * each + place, device) for place, device in enumerate(devices)]

    def is_over(self, deadline: float) -> bool:
        """True after `deadline` (a `time.perf_counter`) on the first worker; up to one message."""
        return deadline < float("inf") and bool(self.first(time.perf_counter() >= deadline))

    def scope(self) -> AbstractContextManager[object]:
        """`strategy.scope()`, in which variables must be created."""
        return nullcontext() if self.strategy is None else self.strategy.scope()

    def on_rows(
        self, function: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Result], of_worker: bool = False
    ) -> Callable[..., Result]:
        """Return a function of a batch that each replica runs on its rows of the batch.

        Replica r of R takes the rows r, r + R, ... The function takes (X [B, D], Y [B, P], seed
        [2]); the returned one gives the result of this process's first replica.

        :param of_worker: the batch belongs to this worker; else all workers have the same batch.
        """
        if self.strategy is None:
            return function
        strategy, sharing = (
            self.strategy,
            self.replicas // self.workers if of_worker else self.replicas,
        )

        def one_replica(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> Result:
            first = rank() % sharing
            return function(X[first::sharing], Y[first::sharing], seed)

        def all_replicas(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> Result:
            outputs = strategy.run(one_replica, (X, Y, seed))
            return tf.nest.map_structure(
                lambda part: strategy.experimental_local_results(part)[0], outputs
            )

        return all_replicas

    def gather(self, value: float | np.ndarray) -> np.ndarray:
        """Return each worker's value, [workers, ...]; one message, after which all have arrived."""
        own = np.zeros((self.workers, *np.shape(value)))
        own[self.number] = value
        if self.workers == 1:
            return own
        with self.naming_lost_workers():
            return self._summed(tf.constant(own.ravel())).numpy().reshape(own.shape)

    def first(self, value: float) -> float:
        """The first worker's number."""
        return float(value) if self.workers == 1 else float(self.gather(value)[0])

    def all(self, value: bool) -> bool:
        """True if `value` is true on all workers."""
        return bool(np.all(self.gather(value)))

    def unlike_first(self, value: float) -> list[int]:
        """The workers whose number differs from the first worker's."""
        values = self.gather(value)
        return [worker for worker in range(self.workers) if values[worker] != values[0]]

    def refuse_unlike(self, values: Mapping[str, object]) -> None:
        """Refuse workers whose values differ from the first worker's; one message."""
        digests = self.gather(
            np.array([zlib.crc32(json.dumps(value).encode()) for value in values.values()])
        )
        for place, name in enumerate(values):
            others = [
                worker
                for worker in range(self.workers)
                if digests[worker, place] != digests[0, place]
            ]
            if others:
                raise DataError(
                    f"The workers {others} were started with another value of {name} than the first"
                    " one; all must build the same model, pass the same arrays and choose the same"
                    " options."
                )

    def together(self, action: Callable[[], Result]) -> Result:
        """Run an action on each worker; if it fails on one, all raise."""
        if self.workers == 1:
            return action()
        error: BaseException | None = None
        try:
            value = action()
        except BaseException as raised:  # an interrupt too: the others would wait
            error = raised
        failed = self.gather(error is not None)
        if not np.any(failed):
            return value
        text = "" if error is None else f"{type(error).__name__}: {error}"
        texts = self.gather(np.frombuffer(text.encode()[:_TEXT].ljust(_TEXT), np.uint8))
        if error is not None:
            raise error
        worker = int(np.argmax(failed))
        cause = texts[worker].astype(np.uint8).tobytes().decode(errors="ignore").strip()
        raise WorkerError(f"Worker {worker} has failed and ends the run on all. {cause}")

    def summed(self, function: Callable[[], Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """Sum a function's tensors over the workers, bitwise the same on all; no gradient flows.

        :param function: returns tensors of the same shapes [...] on all workers; sends no messages.
        """
        # Two messages: whether it failed anywhere, then the tensors in float64. One worker returns
        # them unchanged.
        own = list(self.together(function))
        if self.workers == 1:
            return own
        # without a gradient: a tape would differentiate the message
        vector = tf.stop_gradient(
            tf.concat([tf.reshape(tf.cast(part, tf.float64), [-1]) for part in own], axis=0)
        )
        note_message(self.own[0][0], vector.dtype.size * int(vector.shape[0]))
        with self.naming_lost_workers():
            flat = self._summed(vector)
        pieces = tf.split(flat, [tf.size(part) for part in own])
        return [
            tf.cast(tf.reshape(piece, part.shape), part.dtype) for piece, part in zip(pieces, own)
        ]

    def on_first(self, action: Callable[[], object]) -> None:
        """Run an action on the first worker; the others wait, and fail if it fails."""
        self.together(lambda: action() if self.is_first else None)

    def share(self, count: int) -> slice:
        """The rows of `count` that this worker computes in `over_rows`: all if they are few."""
        few = count < self.workers or self.workers == 1
        return slice(None) if few else slice(self.number, None, self.workers)

    def over_rows(
        self, function: Callable[[np.ndarray], Sequence[tf.Tensor]], X: np.ndarray
    ) -> list[np.ndarray]:
        """Evaluate a function on all rows, each worker computing its share; one message.

        :param function: rows X [n, D] -> arrays [n, ...], row by row; sends no messages.
        :param X: all rows [N, D], the same on all workers.
        :return: the arrays [N, ...], in float64 if there are several workers.
        """
        if len(X) < self.workers or self.workers == 1:
            return [np.asarray(part) for part in function(X)]
        own = self.together(lambda: [np.asarray(part) for part in function(X[self.share(len(X))])])
        most = -(-len(X) // self.workers)
        padded = [
            np.pad(part, [(0, most - len(part))] + [(0, 0)] * (part.ndim - 1)) for part in own
        ]
        gathered = self.gather(np.concatenate([part.reshape(most, -1) for part in padded], axis=1))
        # worker k has the rows k, k + workers, ...
        table = np.swapaxes(gathered, 0, 1).reshape(most * self.workers, -1)[: len(X)]
        ends = np.cumsum([part.size // most for part in padded])[:-1]
        return [
            part.reshape(len(X), *one.shape[1:])
            for part, one in zip(np.split(table, ends, axis=1), own)
        ]

    def input_context(self) -> tf.distribute.InputContext:
        """The argument of a function that reads a worker's shard."""
        return tf.distribute.InputContext(self.workers, self.number, self.replicas)

    def parts_of(self, variable: tf.Variable) -> list[tf.Variable]:
        """This process's copies of a variable [...], one per replica, which a tape can watch."""
        return (
            [variable]
            if self.strategy is None
            else list(self.strategy.experimental_local_results(variable))
        )

    def copies(self, variables: Sequence[tf.Variable]) -> list[list[tf.Tensor]]:
        """Values of variables [...] for each replica of this process."""
        if self.strategy is None:
            return [[variable.read_value() for variable in variables]]
        local = [self.strategy.experimental_local_results(variable) for variable in variables]
        return [[tf.convert_to_tensor(copy) for copy in copies] for copies in zip(*local)]

    def of_first(self, value: tf.Tensor) -> tf.Tensor:
        """The first worker's array [...], in float64; one message."""
        own = tf.cast(value, tf.float64)
        if self.workers == 1:
            return own
        with self.naming_lost_workers():
            return tf.reshape(
                self._summed(tf.reshape(own if self.is_first else tf.zeros_like(own), [-1])),
                own.shape,
            )

    @contextmanager
    def naming_lost_workers(self) -> Iterator[None]:
        """Raise `WorkerError` in plain words if another worker is gone in this block."""
        try:
            yield
        except _LOST as error:
            if self.workers == 1:
                raise
            text = " ".join(str(error).split())
            cause = text.partition("aborted by: ")[2] or text
            raise WorkerError(
                f"Another of {self.workers} workers has ended or cannot be reached; its own output"
                " has the cause. Start all workers again: with a checkpoint they go on from the"
                f" latest state. ({cause[:200]})"
            ) from error

    def _sum(self, own: tf.Tensor) -> tf.Tensor:
        if self.strategy is None:
            return own
        per_worker = self.replicas // self.workers

        def one_replica(vector: tf.Tensor) -> tf.Tensor:
            return total([vector if rank() % per_worker == 0 else tf.zeros_like(vector)])[0]

        return self.strategy.experimental_local_results(self.strategy.run(one_replica, (own,)))[0]


def _place(strategy: tf.distribute.Strategy | None) -> tuple[int, int]:
    resolver = (
        strategy.cluster_resolver
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        else None
    )
    cluster = {} if resolver is None else resolver.cluster_spec().as_dict()
    kinds = [kind for kind in ("chief", "worker") if kind in cluster]
    if resolver is None or not kinds:
        return 1, 0
    before = len(cluster["chief"]) if resolver.task_type == "worker" and "chief" in cluster else 0
    return sum(len(cluster[kind]) for kind in kinds), before + int(resolver.task_id)


# ---
# A worker's dataset, from the user's data.


Data = TypeVar("Data")


def dataset_of(data: Data, group: Group) -> Data | tf.data.Dataset:
    """Return this worker's data: the argument, or the result of a function of an `InputContext`."""
    if isinstance(data, tf.data.Dataset) and group.workers > 1:
        raise DataError(
            f"Each of {group.workers} workers would read all of this dataset: pass a function of a"
            " tf.distribute.InputContext that returns the shard of one, as lambda context:"
            " dataset.shard(context.num_input_pipelines, context.input_pipeline_id)."
        )
    if (
        isinstance(data, tf.data.Dataset)
        or not callable(data)
        or (group.workers == 1 and starts_passes(data))
    ):
        return data
    if group.strategy is None:
        raise DataError(
            "A function of one argument is for several workers: pass strategy, or the dataset"
            " itself, or a function without arguments that returns an iterator of batches."
        )
    if starts_passes(data):
        raise DataError(
            f"Each of {group.workers} workers would read all batches of this function: pass a"
            " function of a tf.distribute.InputContext that returns the dataset of one."
        )
    dataset = data(group.input_context())
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"The function of the data returned a {type(dataset).__name__}; it must return the"
            " tf.data.Dataset of one worker."
        )
    return dataset


def starts_passes(data: object) -> bool:
    """Return True if data are a function without arguments, which starts a pass over batches."""
    if not callable(data):
        return False
    try:
        inspect.signature(data).bind()
    except TypeError:
        return False
    except ValueError:  # functions of C do not tell their arguments
        return True
    return True
