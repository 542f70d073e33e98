"""Rows that contradict others with the same inputs: only they show that there is noise."""

from __future__ import annotations

__all__ = ["contradictions", "noise_of_duplicates", "trust_duplicates"]

import gpflow
import numpy as np

from ...models.neighbours import GaussianNNGP

_CONTRADICTIONS = 500
"""Most rows in each sample that contradict others. On a set with 66 among 41,000, without them the
noise ended anywhere between 1e-3 and 2e-2.
"""
_FAR_BELOW = 1e-2
"""Share of the noise that duplicates show: less is wrong, more may be a few outliers among them."""


def contradictions(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return pairs of rows with the same inputs and other outputs, which share their terms.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: at most 500 row numbers, those with the largest differences first. Cost: N log N.
    """
    later, earlier = _duplicates(X, order)
    largest = np.max(np.nan_to_num(np.abs(Y[later] - Y[earlier])), axis=1, initial=0.0)
    found = np.flatnonzero(largest > 0.0)
    found = found[np.argsort(-largest[found], kind="stable")]
    pairs = np.stack([earlier[found], later[found]], axis=1).reshape(-1)
    return pairs[np.sort(np.unique(pairs, return_index=True)[1])][:_CONTRADICTIONS]


def noise_of_duplicates(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Half the mean squared difference [P] of rows with the same inputs, whatever the kernel.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: zero without such rows. Cost: N log N.
    """
    later, earlier = _duplicates(X, order)
    squares = 0.5 * np.square(Y[later] - Y[earlier])
    there = np.isfinite(squares)
    return np.sum(np.where(there, squares, 0.0), axis=0) / np.maximum(1, np.sum(there, axis=0))


def trust_duplicates(model: GaussianNNGP) -> None:
    """Raise a noise variance far below what rows with the same inputs show, to that.

    Judges count a row at -10 nats at least. Where most such rows have equal outputs, they may
    prefer no noise to the noise of a few rows, which then are 1e5 nats off. For a trainable
    variance of all outputs, or one of each.
    """
    noise = model.likelihood.variance
    X, Y = (part.numpy() for part in model.data)
    if not (isinstance(noise, gpflow.Parameter) and noise.trainable):
        return
    shown, values = noise_of_duplicates(X, Y, model.order), noise.numpy()
    if values.size == 1:
        shown = np.mean(shown)
    elif values.size != Y.shape[1]:  # of groups of rows
        return
    shown = np.reshape(shown, values.shape)
    if np.any(values < _FAR_BELOW * shown):
        noise.assign(np.where(values < _FAR_BELOW * shown, shown, values))


def _duplicates(X: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose inputs stand earlier in the order, and the last row before with these inputs."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    kept = np.arange(len(X))
    for column in X.T:  # a row alone with its number in a column has no duplicate
        kept = kept[_repeated(column[kept])]
    by_group = kept[np.lexsort([rank[kept], *X[kept].T[::-1]])]  # the last key counts first
    same = np.all(X[by_group[1:]] == X[by_group[:-1]], axis=1)
    return by_group[1:][same], by_group[:-1][same]


def _repeated(values: np.ndarray) -> np.ndarray:
    order = np.argsort(values)
    equal = values[order[1:]] == values[order[:-1]]
    found = np.zeros(len(values), bool)
    found[order[1:][equal]] = found[order[:-1][equal]] = True
    return found
