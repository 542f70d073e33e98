"""One column of a data frame as numbers."""

from __future__ import annotations

__all__ = ["Column", "MISSING", "NO_ZONE"]

import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..covariances.mixed import NUM_CODES, UNKNOWN
from ..errors import DataError
from ..user_warnings import warn_user

if TYPE_CHECKING:
    import pandas as pd

MISSING = "(missing)"
"""The category of entries that are missing."""
_KINDS = {
    "integer": "number", "floating": "number", "mixed-integer-float": "number", "decimal": "number",
    "boolean": "truth", "string": "category", "categorical": "category",
    "datetime64": "date", "datetime": "date", "date": "date", "period": "date",
    "timedelta64": "duration", "timedelta": "duration",
}  # fmt: skip
"""Kinds by pandas' name for the type of the entries."""
_TIMES = {"date", "duration"}
_SHOWN = 6
"""Categories that are printed."""
_REPEATED = 0.5
"""Share of the rows above which different words are names of rows, of no use for new ones."""
_FEW = 20
"""Categories that are never too many."""
NO_ZONE = "several"
"""The zone of dates whose offsets from UTC have no common name."""


@dataclass(frozen=True)
class Column:
    """One column of a data frame: its kind, and what was learned in training.

    | kind | columns of X |
    |---|---|
    | number | itself |
    | truth (booleans) | 1 for true, 0 for false |
    | date | days since the first day of training |
    | duration | days |
    | category (words, categories) | one for each category: 1 in its rows, else 0; or, if `coded`, \
one of their numbers |

    Missing numbers, truths, dates and durations take the median, and where training had some,
    another column is 1 in their rows. Missing words are a category. A new category is as far from
    all others as they are from each other, and warned of, as are gaps where training had none. In a
    coded column it has a number made of its word, above all others: rows of one new word are near
    each other.
    """

    name: object
    """As in the frame."""
    kind: str
    gaps: int = 0
    """Missing entries in training."""
    fill: float = 0.0
    """The median, for missing entries."""
    start: str = ""
    """The first day of a date, ISO 8601."""
    categories: tuple[str, ...] = ()
    zone: str | None = None
    """The time zone of a date, empty for dates without one; None in files of earlier versions."""
    coded: bool = False
    """Whether categories are numbers in one column, for a kernel that is told so."""

    @classmethod
    def learn(cls, series: pd.Series, coded_above: float = np.inf) -> Column:
        """Learn the rule of a column of training data.

        :param series: the column, [N].
        :param coded_above: categories above which they are numbers in one column.
        """
        import pandas as pd

        name, gaps = series.name, int(series.isna().sum())
        found = pd.api.types.infer_dtype(series, skipna=True)
        if gaps == len(series):
            raise DataError(
                f"column {name!r} has no entries: leave it out, by frame.drop(columns=[{name!r}])."
            )
        if found not in _KINDS:
            raise DataError(
                f"column {name!r} holds {found} values: make them numbers, words, booleans or dates"
                f" by frame[{name!r}].astype(...), or leave it out by"
                f" frame.drop(columns=[{name!r}])."
            )
        kind = _KINDS[found]
        if kind == "category":
            found = _categories(series)
            return cls(name, kind, gaps, categories=found, coded=len(found) > coded_above)
        start = str(_dates(series).min().date()) if kind == "date" else ""
        zone = _zone(series) if kind == "date" else None
        rule = cls(name, kind, gaps, start=start, zone=zone)
        return replace(rule, fill=float(np.nanmedian(rule.values(series))))

    def values(self, series: pd.Series) -> np.ndarray:
        """Entries [N] as numbers, NaN where they are missing; as words for a category."""
        import pandas as pd

        if self.kind == "category":
            return _words(series)
        if series.isna().all():  # of no kind
            return np.full(len(series), np.nan)
        day = pd.Timedelta(days=1)
        found = pd.api.types.infer_dtype(series, skipna=True)
        try:
            # pandas would guess the format of words, and take numbers for nanoseconds
            if _KINDS.get(found, "") != self.kind and _TIMES & {self.kind, _KINDS.get(found, "")}:
                raise TypeError(f"{found} values")
            if self.kind == "date":
                self._check_zone(series)
                numbers = (_dates(series) - pd.Timestamp(self.start, tz="UTC")) / day
            elif self.kind == "duration":
                numbers = pd.to_timedelta(series) / day
            elif self.kind == "truth":
                numbers = series.astype("boolean")
            else:
                numbers = pd.to_numeric(series)
            values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
        except DataError:
            raise
        except (TypeError, ValueError) as error:
            raise DataError(
                f"column {self.name!r} holds {self.kind} values in training and others here:"
                f" convert it. ({str(error).splitlines()[0][:200]})"
            ) from error
        if np.any(np.isinf(values)):
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise DataError(
                f"column {self.name!r} is {values[row]} in row {row}: correct it, or mark it as"
                " missing by numpy.nan."
            )
        return values

    def encode(self, series: pd.Series) -> np.ndarray:
        """Its columns of X, [N, k]; warns of gaps and categories that training did not have."""
        values = self.values(series)
        if self.kind == "category":
            codes = {word: code for code, word in enumerate(self.categories)}
            self._warn_of_new(values, codes)
            return self._codes(values, codes) if self.coded else self._indicators(values, codes)
        missing = np.isnan(values)
        filled = np.where(missing, self.fill, values)
        if self.gaps:
            return np.stack([filled, missing], axis=1)
        if missing.any():
            warn_user(
                f"column {self.name!r} is missing in {int(missing.sum())} rows, and was in none in"
                f" training: they take its median, {self.fill:.6g}."
            )
        return filled[:, None]

    def _codes(self, words: np.ndarray, codes: Mapping[str, int]) -> np.ndarray:
        # no row may depend on the others of a call, so that new words have numbers of their own
        other = NUM_CODES - UNKNOWN
        found = [codes.get(one, UNKNOWN + zlib.crc32(one.encode()) % other) for one in words]
        return np.array(found, np.float64).reshape(-1, 1)

    def _indicators(self, words: np.ndarray, codes: Mapping[str, int]) -> np.ndarray:
        K = len(self.categories)
        # rows of the identity, and for others the one more vertex that makes a regular simplex
        vertices = np.vstack([np.eye(K), np.full(K, (1.0 - np.sqrt(1.0 + K)) / K)])
        return vertices[[codes.get(word, K) for word in words]]

    def with_categories_of(self, series: pd.Series) -> Column:
        """The rule of a coded column with numbers for new words, too; others unchanged."""
        if not self.coded:
            return self
        new = set(_words(series)) - set(self.categories)
        return replace(self, categories=self.categories + tuple(sorted(new)))

    def _warn_of_new(self, words: np.ndarray, codes: Mapping[str, int]) -> None:
        new = Counter(word for word in words if word not in codes)
        if not new:
            return
        alike = {_plain(word): word for word in self.categories}
        shown = [
            f"{word!r} ({count} row{'s' if count > 1 else ''}"
            + (f"; training has {alike[_plain(word)]!r})" if _plain(word) in alike else ")")
            for word, count in new.most_common(_SHOWN)
        ]
        more = ", ..." if len(new) > _SHOWN else ""
        warn_user(
            f"column {self.name!r} has words that training did not have, in {new.total()} rows:"
            f" {', '.join(shown)}{more}. Predictions take each for a category as far from all"
            " others as they are from each other; correct what is misspelt."
        )

    def _check_zone(self, series: pd.Series) -> None:
        zone = _zone(series)
        if self.zone is None or bool(zone) == bool(self.zone):
            return
        column = f"pandas.to_datetime(frame[{self.name!r}]).dt"
        if self.zone:
            raise DataError(
                f"column {self.name!r} has the time zone {self.zone} in training and none here:"
                f" give it by {column}.tz_localize({self.zone!r})."
            )
        raise DataError(
            f"column {self.name!r} has no time zone in training, and {zone} here: make it the time"
            f" of the training data's clock, by {column}.tz_convert(zone of that"
            " clock).dt.tz_localize(None)."
        )

    @property
    def names(self) -> list[str]:
        """Names of its columns of X."""
        if self.kind == "category" and not self.coded:
            return [f"{self.name}={category}" for category in self.categories]
        if self.coded:
            return [str(self.name)]
        return [str(self.name), *([f"{self.name} missing"] if self.gaps else [])]

    @property
    def measured(self) -> list[bool]:
        """True for each of its columns of X with a scale; others are 0 and 1, or codes."""
        scaled = [False] * len(self.names)
        scaled[0] = self.kind in ("number", "date", "duration")
        return scaled

    def __str__(self) -> str:
        rules = {
            "number": "number",
            "truth": "true or false, as 1 or 0",
            "date": f"date, in days since {self.start}",
            "duration": "duration, in days",
        }
        if self.kind == "category":
            shown = ", ".join(self.categories[:_SHOWN])
            more = ", ..." if len(self.categories) > _SHOWN else ""
            count = len(self.categories)
            rule = "one lengthscale for all" if self.coded else "a column of 0 and 1 for each"
            return f"{self.name}: {count} categories, {rule} ({shown}{more})"
        gaps = f"; {self.gaps} missing: {self.fill:.6g}, and a column that marks them"
        return f"{self.name}: {rules[self.kind]}{gaps if self.gaps else ''}"


def _dates(series: pd.Series) -> pd.Series:
    import pandas as pd

    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    return pd.to_datetime(series, utc=True)


def _zone(series: pd.Series) -> str:
    """The name of the time zone of dates, empty where they have none."""
    import pandas as pd

    if isinstance(series.dtype, pd.DatetimeTZDtype):
        found = {str(series.dtype.tz)}
    elif series.dtype == object:
        zones = {getattr(entry, "tzinfo", None) for entry in series.dropna()}
        found = {"" if zone is None else str(zone) for zone in zones}
    else:
        return ""
    if len(found) > 1 and "" in found:
        raise DataError(
            f"column {series.name!r} mixes dates with and without a time zone, which may be hours"
            " apart: give all of them one, by pandas.Timestamp(...).tz_localize(zone)."
        )
    try:
        (zone,) = found
        pd.Timestamp(0, tz=zone or None)
    except (ValueError, KeyError, LookupError):
        return NO_ZONE
    return zone


def _plain(word: str) -> str:
    """The word without what is often written in several ways: capitals, blanks, 2.0 for 2."""
    text = word.strip().casefold()
    try:
        return _word(float(text))
    except ValueError:
        return text


def _words(series: pd.Series) -> np.ndarray:
    words = np.array([_word(entry) for entry in series.astype(object)], dtype=object)
    words[series.isna().to_numpy()] = MISSING
    return words


def _word(entry: object) -> str:
    # pandas makes integers floats where others are missing: 2 and 2.0 are one category
    if isinstance(entry, (float, np.floating)) and float(entry).is_integer():
        return str(int(entry))
    return str(entry)


def _categories(series: pd.Series) -> tuple[str, ...]:
    found = set(_words(series))
    if len(found) > max(_FEW, _REPEATED * len(series)):
        raise DataError(
            f"column {series.name!r} has {len(found)} different words in {len(series)} rows, which"
            f" say little of new rows: leave it out by frame.drop(columns=[{series.name!r}]), or"
            " make numbers, dates (pandas.to_datetime) or fewer words of it."
        )
    ordered = [_word(word) for word in series.cat.categories] if hasattr(series, "cat") else []
    return tuple([word for word in ordered if word in found] + sorted(found - set(ordered)))
