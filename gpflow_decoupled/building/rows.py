"""Arguments of `build` with a number for each row."""

from __future__ import annotations

__all__ = ["RowArguments", "take_rows", "with_rows"]

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inputs import stacked
from ..likelihoods import NumberedLikelihood, RowLikelihood
from ..likelihoods.row_likelihood import NEUTRAL
from ..training.row_numbers import ARGUMENTS, RowNumbers, number_columns
from ..training.tables.table import check_order, is_frame

RowArguments = Mapping[str, Any]  # arrays, or names of columns
"""By the name of the argument."""


def take_rows(
    X: Any, arguments: RowArguments, Y: Any, own: str | None = None
) -> tuple[Any, np.ndarray | None, RowNumbers | None]:
    """X without the columns that are numbers of rows, these numbers [N, k], and what they are.

    :param X: a data frame, or a matrix.
    :param arguments: None where nothing is given; arrays [N] or [N, P], or names of columns of X.
    :param Y: observations [N, P] or [N].
    :param own: the argument that the likelihood needs.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if own is not None:
        given.setdefault(own, np.full(len(X), NEUTRAL[own]))
    check_order(X=X, Y=Y, **given)
    if "offset" in given and "exposure" in given:
        raise DataError("offset and exposure are both given, and exposure is exp(offset): pass one")
    shape = stacked(Y, "Y").shape
    outputs = shape[1] if len(shape) > 1 else 1
    blocks, names, columns = [], list[str](), list[tuple[str, Hashable]]()
    for argument, value in given.items():
        if isinstance(value, str):
            if not is_frame(X) or value not in X.columns:
                raise DataError(f"{argument}={value!r} is no column of X; pass numbers, [N].")
            columns.append((argument, value))
            value = X[value].to_numpy()
        block = number_columns(argument, value, len(X), outputs)
        blocks.append(block)
        names += [ARGUMENTS[argument]] * block.shape[1]
    if not blocks:
        return X, None, None
    rest = X.drop(columns=[name for _, name in columns]) if columns else X
    return rest, np.hstack(blocks), RowNumbers(outputs, tuple(names), tuple(columns))


def with_rows(likelihood: Likelihood, numbers: RowNumbers | None, gaps: bool) -> Likelihood:
    """The likelihood of rows with numbers, or gaps; itself without either, or with its number."""
    names = () if numbers is None else numbers.names
    own = (likelihood.number,) if isinstance(likelihood, NumberedLikelihood) else ()
    if names == own and not gaps:
        return likelihood
    return RowLikelihood(likelihood, names)
