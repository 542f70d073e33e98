"""The files of a folder of states, safe against a kill."""

from __future__ import annotations

__all__ = ["StateFolder"]

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import tensorflow as tf

from ...user_warnings import warn_user

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
