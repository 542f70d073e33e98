"""Checkpoints from which a killed run goes on to the same trace."""

from __future__ import annotations

__all__ = ["RunCheckpoint"]

import json
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import DataError
from .result import History

UNREADABLE = (OSError, ValueError, KeyError, EOFError, AssertionError, zipfile.BadZipFile, tf.errors.OpError)


class RunCheckpoint:
    """Model, optimizers, place in the data and history of a run, in one folder.

    :param objects: what TensorFlow saves. :param settings: what must be the same for the trace to go on; a folder that
        was written with other settings is refused with a `DataError` that names the difference.

    The record and the history are written before TensorFlow's own index, and each file is renamed into place, so that a
    kill at any moment leaves the checkpoint before.
    """

    def __init__(self, folder: Any, objects: dict[str, Any], settings: dict[str, Any]) -> None:
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
        """Go back to the latest state that can be read: (steps done, totals), or None if the folder holds none.

        Raises `DataError` for other settings, and where no state can be read.
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

    def _compare(self, written: dict[str, Any]) -> None:
        for name in [*self.settings, *(name for name in written if name not in self.settings)]:
            old, new = written.get(name), self.settings.get(name)
            if old != new:
                raise DataError(
                    f"The checkpoint in {self.folder} was written with {name}={old!r}, and this run has {new!r}; use the "
                    "same value, or another folder."
                )

    def _replace(self, name: str, write: Any) -> None:
        temporary = self.folder / (name + ".part")
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, self.folder / name)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])
