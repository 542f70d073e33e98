"""What `fit` takes for its argument `checkpoint`."""

from __future__ import annotations

__all__ = ["Checkpoints"]

import os
from dataclasses import dataclass

from ...errors import DataError
from ...inputs import check_whole
from ...summaries import short_repr


@dataclass(frozen=True)
class Checkpoints:
    """Where `fit` saves a run, and how often: a killed run goes on from there to the same trace.

    With `gamma="data"` and products in single precision the trace is the same up to round-off,
    which the climbs of the hyperparameters multiply: in a test two rounds ended 8e-4 nats apart.
    `ConjugateGradients(float32=False)` avoids it.

    :param folder: where the state is saved. A run that finds a state in it goes on from that one;
        the limits of the run may then be others, while other data or settings are refused. One run
        at a time may use a folder.
    :param every: steps between two checkpoints; there is one more at the end.
    :raises DataError: for what is no path, and unless `every` is at least 1.

    Example::

        fit(model, (X, Y), steps=10_000, checkpoint=Checkpoints("run", every=1000))
    """

    folder: str | os.PathLike[str]
    every: int = 500

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, os.PathLike)):
            raise DataError(
                f"checkpoint={short_repr(self.folder)} is no folder; pass its path, or a"
                " training.Checkpoints."
            )
        check_whole(1, every=self.every)
