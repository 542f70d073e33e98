"""The seconds that parts of a round of sites take, so that a limit of time holds."""

from __future__ import annotations

__all__ = ["SitePace"]

import time
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST = 3
"""Evaluations without which a round is not worth its passes."""
_CHOICE = 8.0
"""Seconds of the choice of prediction neighbours and of the confidence of classes, in units of a
judgement: half of its rows with as many neighbours and with twice as many, then all with those."""


class SitePace:
    """Notes what searches, passes, climbs and judgements take, and foretells the next ones.

    All zero before they were seen; the first pass, which compiles, is none of the last ones.
    """

    def __init__(self) -> None:
        self.judgement = 0.0
        """Seconds of the last one."""
        self._search = self._pass = self._evaluation = 0.0

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time a judgement."""
        began = time.perf_counter()
        yield
        self.judgement = time.perf_counter() - began

    def passed(self, search: float, seconds: float) -> None:
        """Note the seconds of a search for neighbours, and of the last pass after it."""
        self._search, self._pass = search, seconds

    def climbed(self, seconds: float, evaluations: int) -> None:
        """Note the seconds of a climb with its search."""
        self._evaluation = seconds / max(1, evaluations)

    @property
    def after_climb(self) -> float:
        """Seconds of a search, one pass and the judgement."""
        return self._search + self._pass + self.judgement

    @property
    def of_round(self) -> float:
        """The least seconds of a round."""
        return _LEAST * self._evaluation + self.after_climb

    def of_closing(self, passes: int, chooses: bool, times: float = 1.0) -> float:
        """Seconds of the last passes over some `times` as many rows, of their judgement, and of
        what predictions need.

        :param passes: over the sites.
        :param chooses: whether neighbours of predictions are chosen.
        """
        after = 1.0 + (_CHOICE if chooses else 0.0)
        return times * (self._search + passes * self._pass) + after * self.judgement
