"""A random split of a sample."""

from __future__ import annotations

__all__ = ["split_for_certificate"]

import numpy as np
from gpflow.base import RegressionData

from ..errors import DataError
from ..inputs import (
    as_pair,
    as_values,
    check_finite_entries,
    check_same_rows,
    check_whole,
    is_number,
)
from ..summaries import short_repr


def split_for_certificate(
    data: RegressionData, fraction: float = 0.5, seed: int = 0, *, stratify: bool = False
) -> tuple[RegressionData, RegressionData]:
    """Split a sample at random into two disjoint parts.

    Learn hyperparameters on the first, posterior and certificate on the second.

    :param data: X [N, D] and Y [N, 1].
    :param fraction: share of the first part, in (0, 1).
    :param seed: of the split.
    :param stratify: equal class shares; not quite independent samples.
    :return: the first part (X, Y) and the second part (X, Y).

    Example::

        first, second = split_for_certificate((X, Y), 0.3)
        kernel = gpflow.kernels.SquaredExponential()
        fit(CVIGP(first, kernel, BernoulliLogit()))
        model = CVIGP(second, kernel, BernoulliLogit())
        ConjugateComputation().run(model)
        certificate = pac_bayes_certificate(model, second, learned_on=first)
    """
    if not is_number(fraction) or not 0.0 < fraction < 1.0:
        raise DataError(f"fraction={short_repr(fraction)}; use a number between 0 and 1.")
    check_whole(0, seed=seed)
    X, Y = (as_values(array, name) for array, name in zip(as_pair(data), "XY"))
    for array, name in ((X, "X"), (Y, "Y")):
        check_finite_entries(array, name)
    if Y.ndim == 2 and Y.shape[1] != 1:
        raise DataError(
            f"Y has {Y.shape[1]} columns; certificates are for labels [N, 1]: pass one column, Y[:,"
            " :1]."
        )
    check_same_rows(X, Y)
    generator = np.random.default_rng(seed)
    classes = (
        [np.flatnonzero(Y.reshape(-1) == label) for label in np.unique(Y)]
        if stratify
        else [np.arange(len(X))]
    )
    first = np.zeros(len(X), bool)
    for rows in classes:
        first[generator.permutation(rows)[: round(fraction * len(rows))]] = True
    if not 0 < np.sum(first) < len(X):
        raise DataError(
            f"fraction={fraction:g} of {len(X)} rows leaves one part empty; use a fraction closer"
            " to 0.5, or more rows."
        )
    return (X[first], Y[first]), (X[~first], Y[~first])
