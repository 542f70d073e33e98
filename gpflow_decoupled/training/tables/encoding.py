"""The rules of columns, applied by scikit-learn."""

from __future__ import annotations

__all__ = ["encode"]

import functools
from typing import TYPE_CHECKING

import numpy as np

from .column import Column

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.compose import ColumnTransformer


def encode(columns: tuple[Column, ...], frame: pd.DataFrame) -> np.ndarray:
    """Return X [N, D] of a frame that has all columns, in any order.

    :param columns: the rules.
    :param frame: [N, ...]; further columns are not read.
    """
    parts = [column.values(frame[column.name]) for column in columns]
    if all(column.kind != "category" and not column.gaps for column in columns):
        full = [np.where(np.isnan(part), column.fill, part) for column, part in zip(columns, parts)]
        return np.stack(full, axis=1)
    values = np.empty((len(frame) + 1, len(parts)), dtype=object)
    for place, (column, part) in enumerate(zip(columns, parts)):
        values[:-1, place], values[-1, place] = part, _usual(column)
    # scikit-learn refuses to transform no rows, so the last one is always there
    return np.asarray(_transformer(columns).transform(values)[:-1], dtype=np.float64)


def _usual(column: Column) -> object:
    return column.categories[0] if column.kind == "category" else column.fill


@functools.lru_cache(maxsize=32)
def _transformer(columns: tuple[Column, ...]) -> ColumnTransformer:
    # It is fitted to two rows that have the median and, where training had one, a gap, so that the
    # rules alone make it: a file of a model holds them, and no object of scikit-learn.
    try:
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import OneHotEncoder
    except ImportError as error:
        raise ImportError(
            "Categories and gaps of a data frame are encoded by scikit-learn, which is not"
            " installed: pip install scikit-learn; or pass a matrix of numbers."
        ) from error
    steps, rows = [], np.empty((2, len(columns)), dtype=object)
    for place, column in enumerate(columns):
        if column.kind == "category":
            step = OneHotEncoder(
                categories=[np.array(column.categories, dtype=object)],
                handle_unknown="ignore",
                sparse_output=False,
            )
            rows[:, place] = _usual(column)
        else:
            step = SimpleImputer(strategy="median", add_indicator=bool(column.gaps))
            rows[:, place] = [column.fill, np.nan if column.gaps else column.fill]
        steps.append((str(place), step, [place]))
    return ColumnTransformer(steps, sparse_threshold=0.0).fit(rows)
