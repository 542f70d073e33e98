"""Factors of a joint density."""

from __future__ import annotations

__all__ = ["Factor", "SampledFactor", "prior_factor"]

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
from gpflow.base import TensorType

from ..distributions.families import Belief
from ..distributions.families.family import as_float
from ..errors import DataError
from ..summaries import short_repr

Data: TypeAlias = "TensorType | tuple[TensorType, ...]"
"""An array [N, ...], or several."""


class Factor:
    """A factor f with a known E_q log f, a function of its neighbours' beliefs.

    :param neighbours: the names of its variables.
    :param expectation: (one `Belief` per neighbour, data) -> a scalar in nats, summed over rows.
        Its gradient in `belief.expectation` (mu) is the message; one in `belief.natural` (lambda)
        is multiplied by the inverse Fisher matrix.
    :param data: an array [N, ...] or a tuple of them, one row per observation; minibatches pass
        some rows. Integers become floats.
    :param local: neighbours with one row per row of the data, as first batch axis.

    Example, Poisson counts y [N] with a Gamma rate z, mu = (E log z, E z)::

        counts = Factor(
            "rate", lambda z, y: tf.reduce_sum(y * z.expectation[0] - z.expectation[1]), data=y
        )
    """

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        expectation: Callable[..., tf.Tensor],
        *,
        data: Data = (),
        local: Sequence[str] | str = (),
    ) -> None:
        self.neighbours = (neighbours,) if isinstance(neighbours, str) else tuple(neighbours)
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.expectation = expectation
        arrays = data if isinstance(data, tuple) else (data,)
        self.data = tuple(
            as_float(f"data[{place}] of a factor", array) for place, array in enumerate(arrays)
        )
        if not self.neighbours or len(set(self.neighbours)) < len(self.neighbours):
            raise DataError(
                f"the neighbours of a factor are {self.neighbours}; name at least one variable,"
                " each once."
            )
        if not set(self.local) <= set(self.neighbours):
            raise DataError(
                f"local={self.local} must be among the neighbours {self.neighbours} of the factor."
            )
        rows = [array.shape[0] if array.shape.rank else None for array in self.data]
        if None in rows or len(set(rows)) > 1:
            raise DataError(
                f"the data of a factor have {rows} rows; they must be arrays with one row per"
                " observation."
            )

    def expected(
        self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor
    ) -> tf.Tensor:
        """E_q log f, a scalar in nats, for a belief per neighbour and rows of the data [B, ...].

        :param seed: [2], for factors that draw samples.
        """
        return self.expectation(*beliefs, *data)

    @property
    def samples(self) -> int | None:
        """Draws that the expectation averages; None if exact."""
        return None


class SampledFactor(Factor):
    """A factor with a log density only; its expectation is estimated from draws.

    Gradients are implicit reparameterisations (Figurnov et al. 2018) times the inverse Fisher
    matrix.

    :param log_density: (draws [S, ...] per neighbour, data) -> log f [S, ...] in nats, summed over
        all axes but the first.
    :param samples: S, draws per step; the error falls as 1 / sqrt(S), at S densities.
    :param data: as of `Factor`, as `local`.

    Example, counts y [N] with the rate exp(z)::

        counts = SampledFactor(
            "z", lambda z, y: y * z[:, None] - tf.exp(z)[:, None], data=y, samples=20
        )
    """

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        log_density: Callable[..., tf.Tensor],
        *,
        samples: int = 10,
        data: Data = (),
        local: Sequence[str] | str = (),
    ) -> None:
        super().__init__(neighbours, log_density, data=data, local=local)
        if samples < 1:
            raise DataError(f"samples={short_repr(samples)} of a factor must be at least 1.")
        self._samples = samples

    def expected(
        self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor
    ) -> tf.Tensor:
        """An unbiased estimate of E_q log f, a scalar in nats, differentiable in lambda.

        Arguments as `Factor.expected`, the seed is [2].
        """
        # (C36)
        seeds = tf.unstack(tf.random.split(seed, len(beliefs)))
        draws = [belief.sample(self._samples, one) for belief, one in zip(beliefs, seeds)]
        values = self.expectation(*draws, *data)
        if values.shape.rank == 0 or values.shape[0] != self._samples:
            raise DataError(
                f"log_density of the factor on {self.neighbours} returned the shape"
                f" {tuple(values.shape)} for {self._samples} samples; its first axis must be"
                " theirs."
            )
        return tf.reduce_sum(values) / self._samples

    @property
    def samples(self) -> int | None:
        return self._samples


def prior_factor(name: str, belief: Belief, *, local: bool = False) -> Factor:
    """Return the factor of a prior on `name`, of the variable's family, with an exact message.

    :param local: the variable has a row per observation, the prior one or one per row.

    Example::

        prior = prior_factor("rate", Gamma().belief(2.0, 0.5))
    """
    family, natural = belief.family, belief.natural
    shared = natural[0].shape.rank == family.ranks[0]

    def expectation(q: Belief, *rows: tf.Tensor) -> tf.Tensor:
        at = rows or natural
        size = tf.zeros_like(family.log_partition(q.natural))
        return tf.reduce_sum(family.inner(q.expectation, at) - family.log_partition(at) + size)

    return Factor(
        name, expectation, data=() if shared or not local else natural, local=name if local else ()
    )
