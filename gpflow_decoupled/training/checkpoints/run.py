"""The state of a run."""

from __future__ import annotations

__all__ = ["RunCheckpoint"]

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import CheckpointError, DataError
from ...replicas import Group
from ...user_warnings import warn_user
from ..batches import Trackable
from ..result import History, Totals
from ..snapshots import Best
from .folder import StateFolder
from .lock import locked

UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    AssertionError,
    zipfile.BadZipFile,
    tf.errors.OpError,
)
"""Errors of NumPy, JSON and TensorFlow for damaged files."""

BEST = "best "
"""Prefix of the arrays that are the state at the best evaluation, and no traces."""

KEPT = 2
"""States in a folder: the latest, and the one before it, in case that one is damaged."""


class RunCheckpoint:
    """Model, optimizers, place in the data and history of a run, in one folder.

    :param places: this worker's place in its data, by name.
    :param settings: values that must be equal for the trace to continue, by name.
    :param group: the workers of the run: the first one writes, and all read.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        objects: Mapping[str, Trackable],
        places: Mapping[str, Trackable],
        settings: Mapping[str, object],
        group: Group | None = None,
    ) -> None:
        self.group = group or Group()
        self.folder = StateFolder(Path(folder))
        # of NumPy
        self.settings = json.loads(json.dumps(settings, default=lambda number: number.item()))
        alone = self.group.workers == 1
        # with several workers each writes its place in the data itself; all else is the same on all
        self.checkpoint = _with_counter({**objects, **(places if alone else {})})
        self.place = None if alone or not places else _with_counter(places)
        self.sound: list[int] = []
        """The states in the folder that this run has read or written, the oldest first."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder; see `lock.locked`."""
        with ExitStack() as stack:
            self.group.on_first(lambda: stack.enter_context(locked(self.folder.path)))
            yield

    def save(self, step: int, history: History, totals: Totals, best: Best) -> None:
        """Write the state after `step` steps, unless it exists."""
        if self.sound and self.sound[-1] == step:
            return
        is_new = not self.sound
        if self.place is not None:
            self.group.together(lambda: self._write_place(step))
        self.group.on_first(lambda: self._write(step, history, totals, best))
        if not self.group.is_first:
            self.sound = [*self.sound, step][-KEPT:]
        # once, at the first state, before hours of training go to folders that are not shared
        if is_new:
            self.group.together(lambda: self._look_for(step))

    def _look_for(self, step: int) -> None:
        if not self.group.is_first and step not in self.folder.steps():
            raise CheckpointError(
                f"checkpoint={str(self.folder.path)!r} is not the same folder on all workers: the"
                f" first one has written the state of step {step} there, and worker"
                f" {self.group.number} does not see it. Use a folder that all share."
            )

    def _write(self, step: int, history: History, totals: Totals, best: Best) -> None:
        folder, record = self.folder, {"settings": self.settings, "totals": asdict(totals)}
        record["check_sum"] = _check_sum(record)  # NumPy and TensorFlow have their own
        kept = {f"{BEST}{place}": value for place, value in enumerate(best.values)}
        states = [*self.sound, step][-KEPT:]
        with self._writing(step, states):
            folder.write(f"run-{step}.json", lambda file: file.write(json.dumps(record).encode()))
            folder.write(
                f"history-{step}.npz", lambda file: np.savez(file, **history.arrays(), **kept)
            )
            self.checkpoint.write(folder.tensors(step))
            # the index comes last: after a kill it lists the states before this one
            folder.list_states(states)
            self.sound = states

    def _write_place(self, step: int) -> None:
        if self.place is not None:
            with self._writing(step, []):
                self.place.write(self.folder.place(step, self.group.number))

    @contextmanager
    def _writing(self, step: int, states: Sequence[int]) -> Iterator[None]:
        folder = self.folder
        try:
            yield
        except tf.errors.FailedPreconditionError as error:
            raise DataError(
                "This dataset's place cannot be saved (it depends on Python state, as"
                " from_generator does); fit arrays, or leave checkpoint out."
            ) from error
        except (OSError, tf.errors.OpError) as error:
            raise CheckpointError(
                f"The state of step {step} cannot be written to checkpoint={str(folder.path)!r}"
                f" ({_cause(error)}); make room, or use another folder. A run goes on from the"
                " state before it."
            ) from error
        finally:
            if states:
                folder.clean(self.sound or states)

    def restore(self, history: History, best: Best) -> tuple[int, Totals] | None:
        """Go back to the latest state that can be read.

        :return: (steps done, totals), or None without a state.
        """
        self.group.on_first(self.folder.clean)
        found = self.group.together(lambda: self._read(history, best))
        if others := self.group.unlike_first(-1 if found is None else found[0]):
            raise CheckpointError(
                f"checkpoint={str(self.folder.path)!r} is not the same folder on all workers: the"
                f" workers {others} do not find the state that the first one finds. Use a folder"
                " that all share."
            )
        return found

    def _read(self, history: History, best: Best) -> tuple[int, Totals] | None:
        problems, steps = [], self.folder.steps()
        for place, step in reversed(list(enumerate(steps))):
            try:
                record = json.loads((self.folder.path / f"run-{step}.json").read_text())
                if dict(record).get("check_sum", _check_sum(record)) != _check_sum(record):
                    raise ValueError(f"run-{step}.json differs from its check sum")
                settings, totals = dict(record["settings"]), Totals.of(record["totals"])
                with (
                    open(self.folder.path / f"history-{step}.npz", "rb") as file,
                    np.load(file) as arrays,
                ):
                    traces = dict(arrays)
            except UNREADABLE as error:  # the state before it may be sound
                problems.append(f"step {step}: {_cause(error)}")
                continue
            # before anything is restored, so that a refusal changes nothing
            self._compare(settings)
            try:
                self.checkpoint.restore(self.folder.tensors(step)).assert_existing_objects_matched()
                if self.place is not None:
                    own = self.folder.place(step, self.group.number)
                    self.place.restore(own).assert_existing_objects_matched()
            except UNREADABLE as error:
                problems.append(f"step {step}: {_cause(error)}")
                continue
            if problems:
                warn_user(
                    f"The run goes on from step {step}: a later state is damaged ({problems[0]})."
                )
            best.values = [
                traces.pop(f"{BEST}{place}")
                for place in range(sum(BEST in name for name in traces))
            ]
            history.load(traces)
            self.sound = steps[: place + 1]
            return step, totals
        if problems and steps != [0]:
            raise DataError(
                f"No state in {self.folder.path} can be read ({problems[0]}); empty the folder to"
                " start afresh, or use another."
            )
        return None  # no state, or a damaged one of step 0, with which nothing is lost

    def _compare(self, written: Mapping[str, object]) -> None:
        for name in [*self.settings, *(name for name in written if name not in self.settings)]:
            old, new = written.get(name), self.settings.get(name)
            if old != new:
                raise DataError(
                    f"The checkpoint in {self.folder.path} was written with {name}={old!r}, and"
                    f" this run has {new!r}; use the same value, or another folder."
                )


def _with_counter(objects: Mapping[str, Trackable]) -> tf.train.Checkpoint:
    checkpoint = tf.train.Checkpoint(**objects)
    checkpoint.save_counter.assign(0)
    return checkpoint


def _check_sum(record: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps([record["settings"], record["totals"]]).encode())


def _cause(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
