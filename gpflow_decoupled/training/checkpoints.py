"""The states of a run on disk."""

from __future__ import annotations

__all__ = ["Checkpoints", "RunCheckpoint", "StateFolder", "States", "locked"]

import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from ..errors import CheckpointError, DataError
from ..inputs import check_whole
from ..replicas import Group
from ..summaries import short_repr
from ..user_warnings import warn_user
from .batches import Trackable
from .result import History, Totals
from .snapshots import Best, go_back, snapshot

# ---
# The files of a folder of states, safe against a kill.


INDEX = "checkpoint"
"""TensorFlow's name of the file that lists the states, so that `tf.train.latest_checkpoint` works
too.
"""

_STATE = re.compile(r"ckpt-(\d+)(\.(?:index|data-\d+-of-\d+))?")
_FILES = re.compile(
    r"(?:ckpt|place-\d+)-(\d+)\.(?:index|data-\d+-of-\d+)|run-(\d+)\.json|history-(\d+)\.npz"
)
"""The files of a state, and no others: the folder may hold the user's."""
_HALF_FOLDERS = re.compile(r"(?:ckpt|place-\d+)-\d+_temp")
_HALF_FILES = re.compile(r"(?:checkpoint|run-\d+\.json|history-\d+\.npz)\.part")


class StateFolder:
    """States by step: `ckpt-N.*` the tensors, `history-N.npz` the traces, `run-N.json` the record,
    `place-W-N.*` worker W's place.
    """

    # A state counts once the index, written last, lists it. Files are written beside their place
    # and renamed, so a kill leaves the earlier states.

    def __init__(self, path: Path) -> None:
        self.path = path

    def tensors(self, step: int) -> str:
        """Prefix of the files with the tensors of a state."""
        return str(self.path / f"ckpt-{step}")

    def place(self, step: int, worker: int) -> str:
        """Prefix of the files with a worker's place in its own data."""
        return str(self.path / f"place-{worker}-{step}")

    def steps(self) -> list[int]:
        """Steps of the index, oldest first; without a sound index, with a warning, of all files."""
        listed = self._listed()
        if listed is not None:
            return listed
        found = sorted({int(match[1]) for match in self._matches(_STATE) if match[2]})
        if found:
            warn_user(
                f"The index {self.path / INDEX} is missing or damaged; the states {found} are found"
                " by their files."
            )
        return found

    def list_states(self, steps: Sequence[int]) -> None:
        """Write the index; the last of `steps` is the latest state."""
        lines = [f'model_checkpoint_path: "ckpt-{steps[-1]}"']
        lines += [f'all_model_checkpoint_paths: "ckpt-{step}"' for step in steps]
        self.write(INDEX, lambda file: file.write("\n".join([*lines, ""]).encode()))

    def write(self, name: str, fill: Callable[[BinaryIO], object]) -> None:
        """Write a file beside its place, and rename it."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / (name + ".part")
        with open(temporary, "wb") as file:
            fill(file)
        os.replace(temporary, self.path / name)

    def clean(self, kept: Sequence[int] = ()) -> None:
        """Remove remains of broken writes, and the files of all states but `kept`."""
        for match in self._matches(_HALF_FOLDERS):
            shutil.rmtree(self.path / match[0], ignore_errors=True)
        old = [
            match
            for match in self._matches(_FILES)
            if kept and int(match[match.lastindex or 0]) not in kept
        ]
        for match in [*self._matches(_HALF_FILES), *old]:
            (self.path / match[0]).unlink(missing_ok=True)

    def _listed(self) -> list[int] | None:
        try:
            state = tf.train.get_checkpoint_state(str(self.path))
        except ValueError:  # a damaged index
            return None
        if state is None:
            return None
        names = [
            path.replace("\\", "/").rsplit("/", 1)[-1] for path in state.all_model_checkpoint_paths
        ]
        matches = [_STATE.fullmatch(name) for name in names]
        steps = [int(match[1]) for match in matches if match is not None and match[2] is None]
        if (
            len(steps) < len(names)
            or not steps
            or not state.model_checkpoint_path.endswith(f"ckpt-{steps[-1]}")
        ):
            return None
        return steps

    def _matches(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        names = os.listdir(self.path) if self.path.is_dir() else []
        return [match for match in map(pattern.fullmatch, names) if match is not None]


# ---
# One run at a time in a folder.


try:
    import fcntl
except ImportError:  # pragma: no cover  (Windows)
    fcntl = None  # type: ignore[assignment]

NAME = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing.

    The operating system's lock ends with the process; without such locks there is a warning.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint={str(folder)!r} cannot be used as a folder ({error.strerror}); use one"
            " that can be written."
        ) from error
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)  # gives the lock back


def _take(handle: int, folder: Path) -> None:
    reason = "this system has none"
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            raise CheckpointError(
                f"Another run uses the folder {folder}, and two would overwrite each other's"
                " states; wait until it ends, or use another folder."
            ) from error
        except OSError as error:  # a file system without locks
            reason = str(error.strerror)
    warn_user(
        f"The folder {folder} cannot be locked ({reason}); see to it that no other run uses it."
    )


# ---
# The option `checkpoint` of `fit`.


@dataclass(frozen=True)
class Checkpoints:
    """Save a run of `fit` in a folder; a killed run continues from there on the same trace.

    With `gamma="data"` the trace agrees up to single precision.

    :param folder: for one run at a time. A run that finds a state in it continues from there; its
        limits may differ, other data or settings are refused.
    :param every: steps between two checkpoints; the last one is at the end.

    Example::

        fit(model, (X, Y), steps=10_000, checkpoint=Checkpoints("run", every=1000))
    """

    folder: str | os.PathLike[str]
    every: int = 500

    def __post_init__(self) -> None:
        path = os.fspath(self.folder) if isinstance(self.folder, (str, os.PathLike)) else ""
        if not path or "\0" in str(path):
            raise DataError(
                f"checkpoint={short_repr(self.folder)} is no folder; pass its path, for"
                ' example "run", or a training.Checkpoints.'
            )
        check_whole(1, every=self.every)


# ---
# The state of a run.


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


# ---


END = "end"
"""The subfolder of the state after the closing work."""


class States:
    """States from which a run goes on, and its end, where closing work has changed the model.

    :param closes: whether there is such work.
    :param history: of the run; restored with a state, as `best` is.

    Others as in `RunCheckpoint`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        objects: Mapping[str, Trackable],
        places: Mapping[str, Trackable],
        settings: Mapping[str, object],
        group: Group,
        closes: bool,
        history: History,
        best: Best,
    ) -> None:
        self._group, self._history, self._best = group, history, best
        self._steps = RunCheckpoint(folder, objects, places, settings, group)
        end = Path(folder) / END
        self._end = RunCheckpoint(end, objects, {}, settings, group) if closes else None

    def locked(self) -> AbstractContextManager[None]:
        """Keep other runs out of the folder."""
        return self._steps.locked()

    def save(self, done: int, totals: Totals) -> None:
        """Write the state after `done` steps; raises as `RunCheckpoint.save`."""
        self._steps.save(done, self._history, totals, self._best)

    def save_end(self, done: int, totals: Totals) -> None:
        """Write the state after the closing work, where there is such work."""
        if self._end is not None:
            self._end.save(done, self._history, totals, self._best)

    def restore(self, variables: Sequence[tf.Variable]) -> tuple[int, Totals] | None:
        """Go back to the latest state: (steps done, totals), or None where there is none.

        :param variables: whose values stay in that case.
        """
        before, state = snapshot(variables), None
        try:
            state = self._steps.restore(self._history, self._best)
        finally:
            if state is None:  # a damaged state may have been read in part
                go_back(before)
        return state

    def restore_end(self, done: int) -> Totals | None:
        """Take the state after the closing work of a run that ended at this step, if it is there.

        :return: its totals.
        """
        if self._end is None:
            return None
        last = self._end.folder.steps()[-1:] if self._end.folder.path.is_dir() else []
        if self._group.first(last[0] if last else -1) != done:
            return None  # killed before, or of another limit
        try:
            found = self._end.restore(self._history, self._best)
        except DataError:  # damaged: the work is done again
            self._steps.restore(self._history, self._best)
            return None
        return None if found is None else found[1]
