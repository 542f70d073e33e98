"""Seasons of dates: cosine and sine."""

from __future__ import annotations

__all__ = ["PERIODS", "Season", "periods", "seasons_of"]

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...inputs import check_rate
from ...summaries import short_repr
from .column import NO_ZONE, Column

if TYPE_CHECKING:
    import pandas as pd

PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""Days of the seasons that have a name."""
_WAVES: dict[str, Callable[[Any], Any]] = {"cosine": np.cos, "sine": np.sin}


@dataclass(frozen=True)
class Season(Column):
    """A wave of a date: the cosine or the sine of its phase in a period, by its zone's clock.

    On both together a stationary kernel is a periodic one (MacKay 1998). Gaps take the phase of the
    median date, which marks them.
    """

    period: float = 1.0
    """Days."""

    def values(self, series: pd.Series) -> np.ndarray:
        date = Column(self.name, "date", start=self.start, zone=self.zone)
        return self.wave(date.values(series))

    def encode(self, series: pd.Series) -> np.ndarray:
        values = self.values(series)
        return np.where(np.isnan(values), self.fill, values)[:, None]

    def wave(self, days: np.ndarray) -> np.ndarray:
        """The wave [N] at days since the start, which are hours apart where clocks change."""
        if self.zone:
            days = _by_the_clock(days, self.start, self.zone)
        return _WAVES[self.kind](2.0 * np.pi * days / self.period)

    @property
    def names(self) -> list[str]:
        return [f"{self.name} {self.kind} of {self.period:g} days"]

    def __str__(self) -> str:
        if self.kind == "sine":
            return ""  # the cosine's line says it
        clock = f" by the clock of {self.zone}" if self.zone else ""
        return f"{self.name}: its season of {self.period:g} days{clock}, as a cosine and a sine"


def _by_the_clock(days: np.ndarray, start: str, zone: str) -> np.ndarray:
    import pandas as pd

    day = pd.Timedelta(days=1)
    instants = pd.Timestamp(start, tz="UTC") + pd.to_timedelta(days, unit="D")
    clock = instants.tz_convert(zone).tz_localize(None)
    return np.asarray((clock - pd.Timestamp(start)) / day, dtype=np.float64)


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
    for date in dates if days else ():
        if date.zone == NO_ZONE:
            raise DataError(
                f"season= follows the clock of a time zone, and column {date.name!r} has offsets"
                f" of no common one: pandas.to_datetime(frame[{date.name!r}],"
                " utc=True).dt.tz_convert(...) gives it one, such as 'Europe/Berlin'."
            )
    waves = [
        Season(date.name, kind, start=date.start, zone=date.zone, period=one)
        for date in dates for one in days for kind in _WAVES
    ]  # fmt: skip
    fills = {date.name: np.array([date.fill]) for date in dates}
    return tuple(replace(one, fill=float(one.wave(fills[one.name])[0])) for one in waves)
