"""Checkpoints from which a killed run goes on to the same trace."""

from __future__ import annotations

__all__ = ["Checkpoints", "RunCheckpoint"]

import json
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from ..errors import DataError
from .options import check_counts
from .result import History
from .step import Trackable

UNREADABLE = (OSError, ValueError, KeyError, EOFError, AssertionError, zipfile.BadZipFile, tf.errors.OpError)


@dataclass(frozen=True)
class Checkpoints:
    """Where `fit` saves a run, and how often: a killed run goes on from there to the same trace.

    :param folder: where the state is saved. A run that finds a state in it goes on from that one; the limits of the run may
        then be others, while other data or settings are refused.
    :param every: steps between two checkpoints; there is one more at the end.
    :raises DataError: unless `every` is at least 1.

    Example::

        fit(model, (X, Y), steps=10_000, checkpoint=Checkpoints("run", every=1000))
    """

    folder: str | os.PathLike[str]
    every: int = 500

    def __post_init__(self) -> None:
        check_counts(1, every=self.every)


class RunCheckpoint:
    """Model, optimizers, place in the data and history of a run, in one folder.

    :param folder: where the files are; it is created when the first state is saved.
    :param objects: what TensorFlow saves, by name.
    :param settings: what must be the same for the trace to go on, by name.

    The record and the history are written before TensorFlow's own index, and each file is renamed into place. A kill at any
    moment therefore leaves the checkpoint before.
    """

    def __init__(
        self, folder: str | os.PathLike[str], objects: Mapping[str, Trackable], settings: Mapping[str, object]
    ) -> None:
        self.folder = Path(folder)
        self.settings = json.loads(json.dumps(settings))
        self.checkpoint = tf.train.Checkpoint(**objects)
        self.manager = tf.train.CheckpointManager(self.checkpoint, str(self.folder), max_to_keep=2)

    def save(self, step: int, history: History, totals: dict[str, float]) -> None:
        """Write the state after `step` steps, unless it is the latest there."""
        if self.manager.latest_checkpoint is not None and _step_of(self.manager.latest_checkpoint) == step:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {"settings": self.settings, "totals": totals}
        self._replace(f"run-{step}.json", lambda file: file.write(json.dumps(record).encode()))
        self._replace(f"history-{step}.npz", lambda file: np.savez(file, **history.arrays()))
        try:
            self.manager.save(checkpoint_number=step)
        except tf.errors.FailedPreconditionError as error:
            raise DataError(
                "This dataset's place cannot be saved (it depends on Python state, as from_generator does); "
                "fit arrays, or leave checkpoint out."
            ) from error
        kept = {_step_of(path) for path in self.manager.checkpoints}
        for old in [*self.folder.glob("history-*.npz"), *self.folder.glob("run-*.json")]:
            if int(old.stem.split("-")[1]) not in kept:
                old.unlink()
        for half in self.folder.glob("*.part"):
            half.unlink()

    def restore(self, history: History) -> tuple[int, dict[str, float]] | None:
        """Go back to the latest state that can be read.

        :param history: takes the traces of that state.
        :return: (steps done, totals), or None if there is no state in the folder.
        :raises DataError: if the state was written with other settings, or if no state can be read.
        """
        problems = []
        for path in reversed(self.manager.checkpoints):
            step = _step_of(path)
            try:
                record = json.loads((self.folder / f"run-{step}.json").read_text())
                with open(self.folder / f"history-{step}.npz", "rb") as file, np.load(file) as arrays:
                    traces = dict(arrays)
            except UNREADABLE as error:
                problems.append(f"step {step}: {error}")
                continue
            self._compare(record["settings"])
            try:
                self.checkpoint.restore(path).assert_existing_objects_matched()
            except UNREADABLE as error:
                problems.append(f"step {step}: {error}")
                continue
            if problems:
                warnings.warn(
                    f"The run goes on from step {step}: a later state is damaged ({problems[0]}).",
                    stacklevel=2,
                )
            history.load(traces)
            return step, record["totals"]
        if problems:
            raise DataError(
                f"No state in {self.folder} can be read ({problems[0]}); empty the folder to start afresh, or use another."
            )
        return None

    def _compare(self, written: Mapping[str, object]) -> None:
        for name in [*self.settings, *(name for name in written if name not in self.settings)]:
            old, new = written.get(name), self.settings.get(name)
            if old != new:
                raise DataError(
                    f"The checkpoint in {self.folder} was written with {name}={old!r}, and this run has {new!r}; use the "
                    "same value, or another folder."
                )

    def _replace(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        temporary = self.folder / (name + ".part")
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, self.folder / name)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])
