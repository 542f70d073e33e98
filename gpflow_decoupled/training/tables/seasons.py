"""Seasons of dates: cosine and sine."""

from __future__ import annotations

__all__ = ["PERIODS", "Season", "periods", "seasons_of"]

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...inputs import check_rate
from ...summaries import short_repr
from .column import Column

if TYPE_CHECKING:
    import pandas as pd

PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""Days of the seasons that have a name."""
_WAVES: dict[str, Callable[[Any], Any]] = {"cosine": np.cos, "sine": np.sin}


@dataclass(frozen=True)
class Season(Column):
    """A wave of a date: the cosine or the sine of its phase in a period.

    On both together a stationary kernel is a periodic one (MacKay 1998). Gaps take the phase of the
    median date, which marks them.
    """

    period: float = 1.0
    """Days."""

    def values(self, series: pd.Series) -> np.ndarray:
        days = self.date.values(series)
        return _WAVES[self.kind](2.0 * np.pi * days / self.period)

    @property
    def date(self) -> Column:
        """The rule of the date itself."""
        return Column(self.name, "date", start=self.start)

    @property
    def names(self) -> list[str]:
        return [f"{self.name} {self.kind} of {self.period:g} days"]

    def __str__(self) -> str:
        if self.kind == "sine":
            return ""  # the cosine's line says it
        return f"{self.name}: its season of {self.period:g} days, as a cosine and a sine"


def periods(season: str | float | Sequence[str | float] | None) -> tuple[float, ...]:
    """Days of the seasons that a caller names."""
    if season is None:
        return ()
    asked = [season] if isinstance(season, (str, int, float)) else list(season)
    for one in asked:
        if isinstance(one, str) and one not in PERIODS:
            raise DataError(
                f"season={short_repr(one)}: pass one of {', '.join(map(repr, PERIODS))}, or a"
                " number of days."
            )
        if not isinstance(one, str):
            check_rate(season=one)
    return tuple(PERIODS[one] if isinstance(one, str) else float(one) for one in asked)


def seasons_of(columns: Iterable[Column], days: Sequence[float]) -> tuple[Season, ...]:
    """Cosine and sine of each date among the columns, for each period.

    :param columns: of training.
    """
    dates = [column for column in columns if column.kind == "date"]
    if days and not dates:
        raise DataError(
            "season= needs a column of dates, and X has none: make one by pandas.to_datetime; for"
            " a number that counts time pass a kernel with gpflow.kernels.Periodic."
        )
    return tuple(
        Season(date.name, kind, 0, float(wave(2.0 * np.pi * date.fill / one)), date.start,
               period=one)
        for date in dates for one in days for kind, wave in _WAVES.items()
    )  # fmt: skip
