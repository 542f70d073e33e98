"""The option `checkpoint` of `fit`."""

from __future__ import annotations

__all__ = ["Checkpoints"]

import os
from dataclasses import dataclass

from ...errors import DataError
from ...inputs import check_whole
from ...summaries import short_repr


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
