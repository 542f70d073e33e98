"""Random rows for climbs and judgements of hyperparameters."""

from __future__ import annotations

__all__ = ["RowSamples", "split"]

import numpy as np

from ...models.neighbours import GaussianNNGP
from .contradictions import contradictions

_JUDGES = 1000
"""Rows that no climb sees, whose leave-one-out scores judge each round."""


def split(num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers that judge, a fifth and at most 1,000, in order; and the others, in random order.

    A single row is both.
    """
    shuffled = np.random.default_rng([seed, 0]).permutation(num_data)
    count = min(_JUDGES, max(1, num_data // 5))
    return np.sort(shuffled[:count]), shuffled[count:] if num_data > 1 else shuffled


class RowSamples:
    """Rows that judge, and samples of the others, to which rows C that contradict others belong.

    :param model: whose rows are drawn.
    :param most: twice as many as C may have.
    :param seed: of the draws.
    :param whole: each sample has all rows, those that judge too.
    """

    def __init__(self, model: GaussianNNGP, most: int, seed: int, whole: bool = False) -> None:
        X, Y = (part.numpy() for part in model.data)
        self._num_data, self._seed, self.whole = len(X), seed, whole
        self.judges, self.others = split(len(X), seed)
        if whole and len(X) <= _JUDGES:
            self.judges = np.arange(len(X))
        found = contradictions(X, Y, model.order)
        self.certain = found[~np.isin(found, self.judges)][: most // 2]
        """C, rows of every sample: only they show the noise."""

    def draw(self, count: int, number: int) -> np.ndarray:
        """Some of the others but C, other ones for each number; all where there are fewer."""
        rng = np.random.default_rng([self._seed, 1 + number])
        free = np.arange(self._num_data) if self.whole else self.others
        free = np.setdiff1d(free, self.certain)
        return np.sort(rng.choice(free, min(max(count, 0), len(free)), replace=False))

    def sample(self, count: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a round, other ones for each, and the weights of their log densities.

        :param count: B, with C.
        :param number: of the round.
        :return: row numbers [B] and weights [B]: of C one, of the others their share of the rows
            that C leaves.
        """
        N, C = self._num_data, len(self.certain)
        if self.whole:
            return np.arange(N), np.ones(N)
        drawn = self.draw(count - C, number + 1)
        chosen = np.concatenate([self.certain, drawn])
        return chosen, np.where(np.arange(len(chosen)) < C, 1.0, (N - C) / max(1, len(drawn)))
