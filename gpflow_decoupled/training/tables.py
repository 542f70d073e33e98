"""Columns, targets and classes by name."""

from __future__ import annotations

__all__ = [
    "PERIODS", "Season", "Table", "check_order", "is_frame", "is_labelled", "is_truth",
    "periods", "rows_of", "seasons_of",
]  # fmt: skip

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import DataError
from ..inputs import as_array, check_rate, of_known_rank
from ..summaries import short_repr
from .columns import NO_ZONE, Column

# ---
# Seasons of dates: cosine and sine.


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


# ---


if TYPE_CHECKING:
    import pandas as pd


def is_frame(value: object) -> bool:
    """True for a data frame of pandas, or of a library whose columns or pandas frame can be had."""
    if _of_pandas(value):
        return hasattr(value, "columns")
    return hasattr(value, "get_columns") or (
        hasattr(value, "to_pandas") and hasattr(value, "schema")
    )


def is_labelled(value: object) -> bool:
    """True for a data frame, and a single column of one."""
    if _of_pandas(value):
        return is_frame(value) or getattr(value, "ndim", 0) == 1
    return is_frame(value) or _is_column(value)


def is_truth(Y: object) -> bool:
    """True for observations that are all true or false, but for gaps."""
    kind = getattr(Y, "dtype", None)
    if kind is None or getattr(kind, "kind", "") in "fiu":
        return False
    entries = np.asarray(Y, dtype=object).reshape(-1)
    seen = [entry for entry in entries if not _is_missing(entry)]
    return bool(seen) and all(isinstance(entry, (bool, np.bool_)) for entry in seen)


def rows_of(value: Any, rows: np.ndarray | slice) -> Any:
    """Rows of an array [N, ...], a list or a data frame by their places, not their labels."""
    value = _of_frame(value)
    return value.iloc[rows] if _of_pandas(value) else np.asarray(value)[rows]


def check_order(**arrays: Any) -> None:
    """Refuse frames and columns of the same row labels in another order than those of the first.

    :param arrays: by the names of their arguments; arrays and lists have no labels.
    """
    first, *others = [(name, one) for name, one in arrays.items() if _of_pandas(one)] or [
        ("", None)
    ]
    for name, one in others:
        labels, own = one.index, first[1].index
        if len(labels) == len(own) and not labels.equals(own) and set(labels) == set(own):
            raise DataError(
                f"{first[0]} and {name} have the same row labels in another order: to match rows by"
                f" label, pass {name}.loc[{first[0]}.index]; by place, {name}.to_numpy()."
            )


def _of_pandas(value: object) -> bool:
    return hasattr(value, "iloc")


NumbersOf: TypeAlias = Callable[[Any], "np.ndarray | None"]
"""A data frame -> numbers of its rows [N, k]; None where it has none."""


@dataclass(frozen=True)
class Table:
    """Encodes data frames, and numbers classes, as in training.

    Arrays pass: X as encoded, Y as numbers. `names` are the columns of X, [D]. Example::

        table, X, Y = Table.learn(frame[["area", "city"]], frame["price"])
        X_new = table.inputs(new_frame)  # columns in any order
    """

    columns: tuple[Column, ...] = ()
    """Of the frame that X was; none for an array."""
    targets: tuple[Hashable, ...] = ()
    """Names of Y; none for an array."""
    classes: tuple[Any, ...] = ()
    """Classes, in the order of their numbers; none unless they have been numbered."""
    left_out: int = 0
    """Rows of training without a target."""
    weightless: tuple[int, ...] = ()
    """Rows of training of weight 0, which were left out, among those with a target."""

    @classmethod
    def learn(
        cls,
        X: Any,
        Y: Any,
        *,
        labels: int | None = None,
        grades: bool = False,
        gaps: bool = False,
        numbers: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        seasons: Sequence[float] = (),
        coded_above: float = np.inf,
    ) -> tuple[Table, np.ndarray, np.ndarray]:
        """Learn from training data; return the table, and X [N, D] and Y [N, P] as numbers.

        Rows without a target are left out where Y is a frame or a column of one, and rows of
        weight 0.

        :param X: a data frame, one column of it, or a matrix.
        :param Y: a data frame, a column, a matrix or a vector.
        :param labels: number words and other labels of Y, of as many classes; 0 for those in Y.
            Numbers below that, and booleans, keep their numbers.
        :param grades: labels have an order, so that words without one are refused.
        :param gaps: keep rows that have one of several targets, with NaN for others.
        :param numbers: of each row, [N, k], which follow Y as further columns.
        :param weights: of each row, [N].
        :param seasons: days of periods, each of which gives every date a cosine and a sine.
        :param coded_above: categories of a column above which they are numbers in one column, which
            a `covariances.mixed` kernel reads; else each has a column of 0 and 1.
        """
        X, Y, known = _with_target(_of_frame(X), _of_frame(Y), gaps)
        numbers = None if numbers is None else numbers[known]
        weightless = np.zeros(0, bool) if weights is None else weights[known] == 0.0
        if weightless.any() and len(X) == len(Y) == len(weightless):
            if weightless.all():
                raise DataError("sample_weight is 0 in all rows: pass a positive one for some.")
            X, Y = rows_of(X, ~weightless), rows_of(Y, ~weightless)
            numbers = None if numbers is None else numbers[~weightless]
        X = X.to_frame() if is_labelled(X) and not is_frame(X) else X
        columns: tuple[Column, ...] = ()
        if is_frame(X):
            _check_unique(X)
            columns = tuple(Column.learn(X[name], coded_above) for name in X.columns)
        columns += seasons_of(columns, seasons)
        left_out = 0 if isinstance(known, slice) else int(np.sum(~known))
        classes = () if labels is None else _classes(Y, labels, grades)
        none = tuple(np.flatnonzero(weightless).tolist())
        table = cls(columns, _names(Y), classes, left_out, none)
        outputs = table.outputs(Y)
        if numbers is not None:
            outputs = np.hstack([np.asarray(outputs, np.float64), numbers])
        return table, table.inputs(X), outputs

    @staticmethod
    def split(frame: Any, target: Any) -> tuple[Any, Any]:
        """The other columns of a data frame, and the target.

        :param frame: a data frame, where `target` is a name or a list of names; else X.
        :param target: names of columns, or Y.

        Example::

            X, y = Table.split(frame, "price")
        """
        names = target if isinstance(target, list) else [target]
        table = _of_frame(frame)
        if not _are_names(names, table):
            return table, target
        if not is_frame(table):
            raise DataError(
                f"Y={short_repr(target)} names columns, and X is a {type(frame).__name__}; pass a"
                " data frame, or numbers as Y."
            )
        if missing := [name for name in names if name not in [*table.columns]]:
            raise DataError(
                f"the data frame has no column {missing[0]!r}; its columns are"
                f" {', '.join(map(repr, table.columns))}."
            )
        _check_unique(table)
        return table.drop(columns=names), table[target]

    @property
    def names(self) -> list[str]:
        """Of the columns of X, [D]; none if X was an array."""
        return [name for column in self.columns for name in column.names]

    @property
    def measured(self) -> np.ndarray | None:
        """True for each column of X with a scale, [D]; None if X was an array."""
        if not self.columns:
            return None
        return np.array([scaled for column in self.columns for scaled in column.measured])

    @property
    def coded(self) -> list[int]:
        """The columns of X that are codes of categories."""
        marks = [column.coded for column in self.columns for _ in column.names]
        return [place for place, mark in enumerate(marks) if mark]

    def with_categories_of(self, X: Any) -> Table:
        """A table that knows the words of a frame, or of one with a target, in coded columns."""
        X = _of_frame(X)
        if not is_frame(X) or not self.coded:
            return self
        self._check_names(X, [column.name for column in self.columns])
        found = tuple(column.with_categories_of(X[column.name]) for column in self.columns)
        return replace(self, columns=found)

    def arrays(self, data: Any, numbers: NumbersOf | None = None) -> tuple[Any, Any]:
        """X and Y of a pair, or of a frame that has both; rows without a target are left out.

        :param numbers: the numbers of rows [N, k] that a frame has, which follow Y.
        """
        of_rows, whole = None, None
        if is_frame(data):
            whole = data = _of_frame(data)
            if not (self.targets and self.columns):
                raise DataError(
                    "data is a data frame, and the model was made of arrays; pass (X, Y)."
                )
            self._check_names(data, [*(c.name for c in self.columns), *self.targets])
            data = data, data[list(self.targets)]
        if not (isinstance(data, (tuple, list)) and len(data) == 2):
            raise DataError(f"data is a {type(data).__name__}; pass (X, Y).")
        if numbers is not None and is_frame(whole if whole is not None else data[0]):
            of_rows = numbers(_of_frame(data[0]) if whole is None else whole)
        X, Y = map(_of_frame, data)
        X, Y, known = _with_target(X, Y, True)
        outputs = self.outputs(Y)
        if of_rows is not None:
            outputs = np.hstack([np.asarray(outputs, np.float64), of_rows[known]])
        return self.inputs(X), outputs

    def inputs(self, X: Any) -> Any:
        """X [N, D] of a frame; other values, or without learned columns, unchanged."""
        X = _of_frame(X)
        if not self.columns:
            return X
        names = {column.name for column in self.columns}
        if is_labelled(X) and not is_frame(X) and names == {*X.to_frame().columns}:
            X = X.to_frame()
        if is_frame(X):
            self._check_names(X, [column.name for column in self.columns])
            return np.hstack([column.encode(X[column.name]) for column in self.columns])
        if is_labelled(X):
            raise DataError(
                "X is a single row or column; pass a frame, such as frame.iloc[:1], with"
                f" {', '.join(map(repr, dict.fromkeys(c.name for c in self.columns)))}."
            )
        return X

    def outputs(self, Y: Any) -> Any:
        """Y [N, P]; classes as their numbers."""
        Y = _of_frame(Y)
        if is_frame(Y) and self.targets:
            self._check_names(Y, self.targets)
            Y = Y[list(self.targets)]
        if self.classes and _has_labels(Y):
            return _numbered(Y, self.classes)
        array = _numbers_of(Y) if is_labelled(Y) else of_known_rank(as_array(Y, "Y"))
        return array[:, None] if len(array.shape) == 1 else array

    @staticmethod
    def _check_names(frame: pd.DataFrame, names: Sequence[object]) -> None:
        if missing := [name for name in names if name not in frame.columns]:
            raise DataError(
                f"the data frame lacks {', '.join(map(repr, missing))}, of the columns that the"
                " model was made of; rename or add them."
            )
        _check_unique(frame)

    def __str__(self) -> str:
        lines = [f"  {line}" for line in map(str, self.columns) if line]
        left_out = {"without a target": self.left_out, "of weight 0": len(self.weightless)}
        for which, count in left_out.items():
            if count:
                lines.append(f"  {count} {'row' if count == 1 else 'rows'} {which} left out")
        if self.classes:
            lines.append(f"  classes 0, 1, ...: {', '.join(map(str, self.classes))}")
        return "\n".join(lines)


def _are_names(names: list[Any], frame: Any) -> bool:
    if not names or all(isinstance(name, str) for name in names):
        return bool(names)
    kinds = (str, int, np.integer, tuple)
    if not is_frame(frame) or not all(isinstance(name, kinds) for name in names):
        return False
    # numbers may be observations too, as many as rows
    return all(name in [*frame.columns] for name in names) and len(names) != len(frame)


def _is_column(value: object) -> bool:
    return all(hasattr(value, part) for part in ("name", "dtype", "to_list", "to_frame"))


def _of_frame(value: Any) -> Any:
    """The frame or column of pandas; of polars by its columns, since its own way needs pyarrow."""
    if _of_pandas(value) or not is_labelled(value):
        if hasattr(value, "collect_schema"):
            raise DataError(
                f"a {type(value).__name__} has no rows yet: pass frame.collect() in its place."
            )
        return value
    if not is_frame(value):
        return _of_column(value)
    if not hasattr(value, "get_columns"):
        return value.to_pandas()
    import pandas as pd

    return pd.DataFrame({column.name: _of_column(column) for column in value.get_columns()})


def _of_column(column: Any) -> pd.Series:
    import pandas as pd

    # categories that are a list have their order
    ordered: Any = getattr(column.dtype, "categories", None)
    kind = pd.CategoricalDtype(ordered.to_list()) if hasattr(ordered, "to_list") else None
    return pd.Series(column.to_list(), name=column.name, dtype=kind)


def _names(Y: Any) -> tuple[Hashable, ...]:
    if is_frame(Y):
        return tuple(Y.columns)
    return (Y.name,) if is_labelled(Y) and Y.name is not None else ()


def _with_target(X: Any, Y: Any, gaps: bool) -> tuple[Any, Any, np.ndarray | slice]:
    check_order(X=X, Y=Y)
    if not is_labelled(Y):  # arrays are checked later; rows of a batch are not counted yet
        return X, Y, slice(None)
    if not Y.notna().to_numpy().any():
        names = ", ".join(map(repr, _names(Y)))
        raise DataError(f"none of the {len(Y)} rows has a target {names}: pass rows that have one.")
    missing = Y.isna().to_numpy().reshape(len(Y), -1)
    known = ~(missing.all(axis=1) if gaps else missing.any(axis=1))
    if len(X) != len(Y) or known.all():
        return X, Y, slice(None)
    return rows_of(X, known), rows_of(Y, known), known


def _check_unique(frame: pd.DataFrame) -> None:
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"the data frame has two columns {twice[0]!r}; rename one of them.")


def _numbers_of(Y: Any) -> np.ndarray:
    columns = [Y[name] for name in Y.columns] if is_frame(Y) else [Y]
    rules = [Column.learn(column) for column in columns]
    for rule in rules:
        if rule.kind not in ("number", "truth"):
            raise DataError(
                f"the target {rule.name!r} holds {rule.kind} values; pass numbers, or for classes"
                ' likelihood="multiclass" or "bernoulli".'
            )
    return np.stack([rule.values(column) for rule, column in zip(rules, columns)], axis=1)


def _labels(Y: Any) -> np.ndarray:
    array = Y.to_numpy() if is_labelled(Y) else np.asarray(Y)
    if array.size != len(array):
        raise DataError(
            f"Y has {array.shape[1]} columns; for classes pass one, their numbers:"
            " np.argmax(Y, axis=1)[:, None]."
        )
    # of a list NumPy would make words, "nan" among them
    missing = [_is_missing(entry) for entry in np.asarray(Y, dtype=object).reshape(-1)]
    if any(missing):
        raise DataError(
            f"Y[{missing.index(True)}] is no label but missing, like {sum(missing)} in all: leave"
            " these rows out, by keep = pandas.notna(Y); X, Y = X[keep], Y[keep]."
        )
    return array.reshape(-1)


def _is_missing(entry: object) -> bool:
    return entry is None or type(entry).__name__ == "NAType" or entry != entry


def _classes(Y: Any, count: int, grades: bool) -> tuple[Any, ...]:
    if not _has_labels(Y):
        return ()
    labels = _labels(Y)
    has_order = hasattr(Y, "cat") and (Y.cat.ordered or not grades)
    ordered = list(Y.cat.categories) if has_order else []
    found = set(labels.tolist())
    if found <= set(range(count)):  # True is 1
        truths = labels.dtype == bool and count == 2
        return (False, True) if truths else tuple(sorted(found | set(range(count))))
    if count and len(ordered) == count:
        return tuple(ordered)
    if len(found) == 1 and count:
        raise DataError(
            f"Y has one class, {labels[0]!r}, so that there is nothing to tell apart: pass rows of"
            f" two classes, or labels 0 and {count - 1}."
        )
    if grades and not has_order and any(isinstance(one, str) for one in found):
        raise DataError(
            f"the target has words, such as {labels[0]!r}, in no order: say it by"
            " pandas.Categorical(words, categories=[lowest, ..., highest], ordered=True)."
        )
    try:
        rest = sorted(found - set(ordered))
    except TypeError as error:
        raise DataError(
            "the labels of Y are of several kinds; make them words by Y.astype(str)."
        ) from error
    return tuple([label for label in ordered if label in found] + rest)


def _has_labels(Y: Any) -> bool:
    return is_labelled(Y) or (
        isinstance(Y, (list, tuple, np.ndarray)) and np.asarray(Y).dtype.kind in "OUS"
    )


def _numbered(Y: Any, classes: tuple[Any, ...]) -> np.ndarray:
    number = {label: place for place, label in enumerate(classes)}
    labels = _labels(Y).tolist()
    if unknown := sorted({str(label) for label in labels if label not in number}):
        raise DataError(
            f"Y has the class {unknown[0]!r}, and training had {', '.join(map(str, classes))}."
        )
    return np.array([number[label] for label in labels], dtype=np.int64)[:, None]
