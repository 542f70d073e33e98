"""Factors of a joint density: what each says of its variables, as an expected log density in nats."""

from __future__ import annotations

__all__ = ["Factor", "SampledFactor", "prior_factor"]

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...distributions.families import Belief
from ...distributions.families.base import as_float
from ...errors import DataError


class Factor:
    """A factor f whose E_q log f is known, as a function of beliefs about its neighbours.

    :param neighbours: the names of its variables.
    :param expectation: a function of one `Belief` a neighbour and then of the data: a scalar in nats, summed over all rows.
        What it takes from `belief.expectation` (mu) is differentiated as it stands: for a conditionally conjugate factor this
        is the exact message. What it takes from `belief.natural` goes through a Fisher solve.
    :param data: an array [N, ...] or a tuple of them, one row an observation; on minibatches the function gets some of the
        rows, and is to sum over these. Integers become floats.
    :param local: those of the neighbours that have a row for each row of the data, as the first axis of their batch.

    Raises `DataError` for data that are not finite or disagree in N, and for local names that are no neighbours.
    """

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        expectation: Callable[..., tf.Tensor],
        *,
        data: Any = (),
        local: Sequence[str] | str = (),
    ) -> None:
        self.neighbours = (neighbours,) if isinstance(neighbours, str) else tuple(neighbours)
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.expectation = expectation
        arrays = data if isinstance(data, tuple) else (data,)
        self.data = tuple(as_float(f"data[{place}] of a factor", array) for place, array in enumerate(arrays))
        if not self.neighbours or len(set(self.neighbours)) < len(self.neighbours):
            raise DataError(f"the neighbours of a factor are {self.neighbours}; name at least one variable, each once.")
        if not set(self.local) <= set(self.neighbours):
            raise DataError(f"local={self.local} must be among the neighbours {self.neighbours} of the factor.")
        rows = [array.shape[0] if array.shape.rank else None for array in self.data]
        if None in rows or len(set(rows)) > 1:
            raise DataError(f"the data of a factor have {rows} rows; they must be arrays with one row an observation.")

    def expected(self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        """E_q log f, a scalar in nats, for one belief a neighbour and rows of the data [B, ...]; seed [2] is for samples."""
        return self.expectation(*beliefs, *data)

    @property
    def samples(self) -> int | None:
        """How many draws the expectation is an average of; None if it is exact."""
        return None


class SampledFactor(Factor):
    """A factor known by its log density alone: gradients by implicit reparameterisation (C36) and a Fisher solve.

    :param log_density: log f as a function of draws [S, ...], one array a neighbour, and then of the data: [S, ...] in nats,
        of which all axes but the first are summed.
    :param samples: S, the draws of a step; the error of a message falls as its root, the cost is S densities.

    The other arguments are those of `Factor`. Raises `DataError` for less than one sample.
    """

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        log_density: Callable[..., tf.Tensor],
        *,
        samples: int = 10,
        data: Any = (),
        local: Sequence[str] | str = (),
    ) -> None:
        super().__init__(neighbours, log_density, data=data, local=local)
        if samples < 1:
            raise DataError(f"samples={samples!r} of a factor must be at least 1.")
        self._samples = samples

    def expected(self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        """An unbiased estimate of E_q log f, a scalar in nats, from draws that are differentiable in lambda."""
        seeds = tf.unstack(tf.random.split(seed, len(beliefs)))
        draws = [belief.sample(self._samples, one) for belief, one in zip(beliefs, seeds)]
        values = self.expectation(*draws, *data)
        if values.shape.rank == 0 or values.shape[0] != self._samples:
            raise DataError(
                f"log_density of the factor on {self.neighbours} returned the shape {tuple(values.shape)} for "
                f"{self._samples} samples; its first axis must be theirs."
            )
        return tf.reduce_sum(values) / self._samples

    @property
    def samples(self) -> int | None:
        """The draws of a step."""
        return self._samples


def prior_factor(name: str, belief: Belief, *, local: bool = False) -> Factor:
    """The factor for a prior on the variable `name`: a member of its family, whose message is exact at once.

    With `local` the variable has a row for each observation, and the prior is one for all, or has the rows too.
    """
    family, natural = belief.family, belief.natural
    shared = natural[0].shape.rank == family.ranks[0]

    def expectation(q: Belief, *rows: tf.Tensor) -> tf.Tensor:
        at = rows or natural
        size = tf.zeros_like(family.log_partition(q.natural))
        return tf.reduce_sum(family.inner(q.expectation, at) - family.log_partition(at) + size)

    return Factor(name, expectation, data=() if shared or not local else natural, local=name if local else ())
