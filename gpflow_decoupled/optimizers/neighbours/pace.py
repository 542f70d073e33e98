"""The seconds that parts of a round take, so that a limit of time holds."""

from __future__ import annotations

__all__ = ["Pace"]

import time
from collections.abc import Iterator
from contextlib import contextmanager

_JUDGED = 2
"""Candidates of a round that are judged."""
_LEAST = 3
"""Evaluations without which a round is not worth its search for neighbours."""


class Pace:
    """Measures judgements and rounds as they go, and says what the next ones will take."""

    def __init__(self) -> None:
        self._judgement = self._search = self._evaluation = 0.0  # the last two for each row

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time a judgement."""
        began = time.perf_counter()
        yield
        self._judgement = time.perf_counter() - began

    def climbed(self, rows: int, search: float, seconds: float, evaluations: int) -> None:
        """Note the seconds of a search for the neighbours of some rows, and of the climb."""
        self._search = search / max(1, rows)
        self._evaluation = seconds / max(1, rows * evaluations)

    @property
    def of_judgements(self) -> float:
        """Seconds of the judgements after a climb."""
        return _JUDGED * self._judgement

    def of_calibration(self, ratio: float) -> float:
        """Seconds of the judgement with all neighbours of a prediction, `ratio` times as many."""
        return self._judgement * ratio**2

    def of_round(self, rows: int) -> float:
        """The least seconds of a round of some rows; zero before the first one."""
        return rows * (self._search + _LEAST * self._evaluation) + self.of_judgements
