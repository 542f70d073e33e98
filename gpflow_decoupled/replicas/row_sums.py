"""Sums over rows, shared among replicas."""

from __future__ import annotations

__all__ = ["RowSums"]

from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

import tensorflow as tf

from ..compilation import Compiled
from .group import Group
from .sums import rank, total

Shared = TypeVar("Shared")
Sums = TypeVar("Sums")


class RowSums(Generic[Shared, Sums]):
    """Sum the contributions of many blocks of rows, with one message at the end.

    Each worker reads its blocks, and its replicas share their rows. A single replica sends nothing.

    :param add: (shared, sums, X [B, D], Y [B, P]) -> sums with these rows, perhaps none; sends no
        messages.
    :param symmetric: places of symmetric matrices [..., M, M] in the sums; one triangle is sent.
    """

    def __init__(
        self,
        group: Group,
        add: Callable[[Shared, Sums, tf.Tensor, tf.Tensor], Sums],
        compile: bool = True,
        symmetric: Collection[int] = (),
    ) -> None:
        self.group, self._symmetric = group, symmetric
        chosen = add if group.strategy is None else self._on_replicas(add, group.strategy)
        self._add = Compiled(chosen, reduce_retracing=True) if compile else chosen
        self._total = tf.function(self._all_replicas_total, autograph=False)

    def __call__(
        self, shared: Shared, zero: Sums, blocks: Iterable[tuple[tf.Tensor, tf.Tensor]]
    ) -> Sums:
        """Return the sums over all rows of all workers, bitwise the same on each.

        :param shared: nested tensors that do not depend on the rows.
        :param zero: sums of no rows, of static shapes.
        :param blocks: this worker's X [B, D] and Y [B, P].
        """

        def of_worker() -> Sums:
            sums = self._spread(zero)
            for X, Y in blocks:
                sums = self._add(shared, sums, X, Y)
            return sums

        own = self.group.together(of_worker)
        if self.group.replicas == 1:
            return own
        with self.group.naming_lost_workers():
            parts = self._total(own)
        kinds = [part.dtype for part in tf.nest.flatten(zero)]
        return tf.nest.pack_sequence_as(
            zero, [tf.cast(part, kind) for part, kind in zip(parts, kinds)]
        )

    def _on_replicas(
        self,
        add: Callable[[Shared, Sums, tf.Tensor, tf.Tensor], Sums],
        strategy: tf.distribute.Strategy,
    ) -> Callable[[Shared, Sums, tf.Tensor, tf.Tensor], Sums]:
        sharing = self.group.replicas // self.group.workers

        def one_replica(shared: Shared, sums: Sums, X: tf.Tensor, Y: tf.Tensor) -> Sums:
            first = rank() % sharing
            return add(shared, sums, X[first::sharing], Y[first::sharing])

        return lambda *given: strategy.run(one_replica, given)

    def _spread(self, zero: Sums) -> Sums:
        """A copy per replica, even without blocks, so that all workers trace the same functions."""
        return (
            zero
            if self.group.strategy is None
            else self.group.strategy.run(lambda sums: sums, (zero,))
        )

    def _all_replicas_total(self, own: Sums) -> list[tf.Tensor]:
        strategy = self.group.strategy
        if strategy is None:
            return list(tf.nest.flatten(own))

        def one_replica(sums: Sums) -> list[tf.Tensor]:
            return total(
                [tf.cast(part, tf.float64) for part in tf.nest.flatten(sums)], self._symmetric
            )

        return [
            strategy.experimental_local_results(part)[0]
            for part in strategy.run(one_replica, (own,))
        ]
