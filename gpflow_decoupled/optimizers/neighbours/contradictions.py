"""Rows that contradict others: only they show that there is noise."""

from __future__ import annotations

__all__ = ["contradictions"]

import numpy as np

_CONTRADICTIONS = 500
"""Most rows in each sample that contradict others. On a set with 66 among 41,000, without them the
noise ended anywhere between 1e-3 and 2e-2.
"""


def contradictions(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return rows whose inputs stand earlier in an order with another output.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: at most 500 row numbers, those with the largest differences first. Cost: N log N.
    """
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    kept = np.arange(len(X))
    for column in X.T:  # a row alone with its number in a column has no duplicate
        kept = kept[_repeated(column[kept])]
    by_group = kept[np.lexsort([rank[kept], *X[kept].T[::-1]])]  # the last key counts first
    same = np.all(X[by_group[1:]] == X[by_group[:-1]], axis=1)
    differences = np.abs(Y[by_group[1:]] - Y[by_group[:-1]])
    largest = np.max(np.nan_to_num(differences), axis=1, initial=0.0)
    found = np.flatnonzero(same & (largest > 0.0))
    found = found[np.argsort(-largest[found], kind="stable")]
    return by_group[1:][found[:_CONTRADICTIONS]]


def _repeated(values: np.ndarray) -> np.ndarray:
    order = np.argsort(values)
    equal = values[order[1:]] == values[order[:-1]]
    found = np.zeros(len(values), bool)
    found[order[1:][equal]] = found[order[:-1][equal]] = True
    return found
