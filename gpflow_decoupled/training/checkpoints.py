"""Checkpoints from which a killed run goes on to the same trace."""
from __future__ import annotations

__all__ = ["RunCheckpoint"]

import json
import os
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from ..errors import DataError
from .result import History


class RunCheckpoint:
    """Model, optimizers, place in the data and history of a run, in one folder.

    :param objects: what TensorFlow saves. :param settings: what must be the same for the trace to go on; a folder that
        was written with other settings is refused with a `DataError` that names the difference.

    The history is written before TensorFlow's own index, and each file is renamed into place, so that a kill at any moment
    leaves the checkpoint before.
    """

    def __init__(self, folder: Any, objects: dict[str, Any], settings: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.settings = json.loads(json.dumps(settings))
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.checkpoint = tf.train.Checkpoint(step=self.step, **objects)
        self.manager = tf.train.CheckpointManager(self.checkpoint, str(self.folder), max_to_keep=2)

    def save(self, step: int, history: History, totals: dict[str, float]) -> None:
        """Write the state after `step` steps."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {"settings": self.settings, "totals": totals}
        self._replace(f"run-{step}.json", lambda file: file.write(json.dumps(record).encode()))
        self._replace(f"history-{step}.npz", lambda file: np.savez(file, **history.arrays()))
        self.step.assign(step)
        try:
            self.manager.save(checkpoint_number=step)
        except tf.errors.FailedPreconditionError as error:
            raise DataError(
                "This dataset's place cannot be saved (it depends on Python state, as from_generator does); fit arrays, or "
                "leave checkpoint out."
            ) from error
        for old in set(self.folder.glob("history-*.npz")) | set(self.folder.glob("run-*.json")):
            if int(old.stem.split("-")[1]) < step and f"ckpt-{old.stem.split('-')[1]}" not in str(self.manager.checkpoints):
                old.unlink()

    def restore(self, history: History) -> Optional[tuple[int, dict[str, float]]]:
        """Go back to the latest state: (steps done, totals), or None if the folder holds none."""
        latest = self.manager.latest_checkpoint
        if latest is None:
            return None
        step = int(latest.rsplit("-", 1)[1])
        record = json.loads((self.folder / f"run-{step}.json").read_text())
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise DataError(
                    f"The checkpoint in {self.folder} was written with {name}={record['settings'].get(name)!r}, and this run "
                    f"has {value!r}; use the same value, or another folder."
                )
        self.checkpoint.restore(latest).assert_existing_objects_matched()
        with np.load(self.folder / f"history-{step}.npz") as arrays:
            history.load(dict(arrays))
        return step, record["totals"]

    def _replace(self, name: str, write: Any) -> None:
        temporary = self.folder / (name + ".part")
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, self.folder / name)
