"""Two parts of a sample: one for the hyperparameters of the prior, one for posterior and certificate."""

from __future__ import annotations

__all__ = ["split_for_certificate"]

import numpy as np
from gpflow.base import RegressionData

from ..errors import DataError


def split_for_certificate(
    data: RegressionData, fraction: float = 0.5, seed: int = 0, *, stratify: bool = False
) -> tuple[RegressionData, RegressionData]:
    """((X, Y) to learn the prior's hyperparameters on, (X, Y) for posterior and certificate), at random, without overlap.

    :param data: X [N, D], Y [N, 1]. :param fraction: of the rows for the hyperparameters, in (0, 1). :param seed: of the draw.
    :param stratify: the same share of every class in both parts. Then the class counts of one tell those of the other, so that
        the certified part is not quite an independent sample; a plain split is.

    Raises `DataError` for a fraction outside (0, 1), arrays of different lengths, or a part without rows.
    """
    if not 0.0 < fraction < 1.0:
        raise DataError(f"fraction={fraction!r}; use a number between 0 and 1.")
    X, Y = (np.asarray(array) for array in data)
    if len(X) != len(Y):
        raise DataError(f"X has {len(X)} rows and Y has {len(Y)}; they must be the same observations.")
    generator = np.random.default_rng(seed)
    classes = [np.flatnonzero(Y.reshape(-1) == label) for label in np.unique(Y)] if stratify else [np.arange(len(X))]
    first = np.zeros(len(X), bool)
    for rows in classes:
        first[generator.permutation(rows)[: round(fraction * len(rows))]] = True
    if not 0 < np.sum(first) < len(X):
        raise DataError(f"fraction={fraction:g} of {len(X)} rows leaves one part empty; change it, or get more data.")
    return (X[first], Y[first]), (X[~first], Y[~first])
