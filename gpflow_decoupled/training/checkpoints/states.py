"""The states of a run on disk."""

from __future__ import annotations

__all__ = ["States"]

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from ...errors import DataError
from ...replicas import Group
from ..batches import Trackable
from ..result import History, Totals
from ..snapshots import Best, go_back, snapshot
from .run import RunCheckpoint

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
