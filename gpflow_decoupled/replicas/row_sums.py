"""Sums over rows, shared among replicas."""

from __future__ import annotations

__all__ = [
    "RowSums", "apply_trainable", "check_strategy", "group_of", "named_variables",
    "parameter_digests", "refuse_elsewhere", "refuse_other_workers",
]  # fmt: skip

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from ..compilation import Compiled
from ..errors import DataError
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


# ---
# Refusals of silent failures on several replicas.


_REASONS: tuple[tuple[str, str], ...] = (
    (
        "Parameter",
        (
            "its replicas do not wait for each other, and a natural gradient needs the sums of all"
            " of them"
        ),
    ),
    (
        "CentralStorage",
        "it keeps variables in one place, and its replicas read them one after the other",
    ),
    ("TPU", "TPUs compute in float32 with XLA, and nothing here has been tried on them"),
    (
        "OneDevice",
        (
            "one device has nothing to add up: leave strategy out, and use tf.device to choose the"
            " device"
        ),
    ),
    ("Default", "it is TensorFlow's default, with one replica: leave strategy out"),
)
"""(part of a strategy's class name, why it is refused)"""


def check_strategy(strategy: object, variables: Iterable[tf.Variable] = ()) -> None:
    """Refuse asynchronous strategies, and the scope of a strategy that was not passed.

    :param variables: the model's, of any shapes [...].
    """
    if strategy is None:
        around = tf.distribute.get_strategy()
        if around.num_replicas_in_sync > 1:
            raise DataError(
                f"This runs in the scope of a {type(around).__name__} with"
                f" {around.num_replicas_in_sync} replicas, which was not passed: use fit(...,"
                " strategy=strategy)."
            )
        if any(isinstance(variable, tf.distribute.DistributedValues) for variable in variables):
            raise DataError(
                "The model was built in the scope of a tf.distribute strategy, which was not"
                " passed: use fit(..., strategy=strategy)."
            )
        return
    if isinstance(
        strategy, (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    ):
        return
    name = type(strategy).__name__
    reason = next(
        (why for part, why in _REASONS if part in name), "it is none of the two that are known here"
    )
    raise DataError(
        f"strategy is a {name}, which does not work here: {reason}. Pass a"
        " tf.distribute.MirroredStrategy, for the devices of one process, or a"
        " tf.distribute.MultiWorkerMirroredStrategy, for several processes."
    )


def refuse_elsewhere(
    strategy: tf.distribute.Strategy | None, variables: Mapping[str, tf.Variable], fix: str
) -> None:
    """Refuse variables that the strategy does not mirror.

    :param variables: by the users' names, of any shapes [...].
    """
    for name, variable in variables.items():
        if strategy is not None and not strategy.extended.variable_created_in_scope(variable):
            raise DataError(f"{name} was created outside of the scope of this strategy: {fix}")


def apply_trainable(variables: Iterable[tf.Variable]) -> None:
    """Let `gpflow.set_trainable` take effect on mirrored variables of any shapes [...]."""
    # GPflow writes the flag to the mirrored variable, but TensorFlow reads it from the first copy.
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            flag = getattr(variable, "_trainable", variable.trainable)
            for copy in variable.values:
                copy._trainable = flag


def group_of(model: tf.Module, strategy: tf.distribute.Strategy | None) -> Group:
    """Return the workers of the strategy that trains a model."""
    check_strategy(strategy, model.variables)
    refuse_elsewhere(
        strategy,
        named_variables(model),
        "build the whole model inside of `with strategy.scope():`.",
    )
    apply_trainable(model.variables)
    return Group(strategy)


def refuse_other_workers(
    group: Group, model: tf.Module, arrays: Sequence[np.ndarray], settings: Mapping[str, object]
) -> None:
    """Refuse workers whose model, data or settings differ from the first worker's.

    Arrays X are [N, D], Y [N, P]; settings are JSON values by name.
    """
    digests = parameter_digests(model)
    group.refuse_unlike({"the names of the Parameters": list(digests), "the settings": settings})
    data = [zlib.crc32(np.ascontiguousarray(array).tobytes()) for array in arrays]
    group.refuse_unlike({"the number of rows": len(arrays[0]), "the data": data, **digests})


def parameter_digests(model: tf.Module) -> dict[str, int]:
    """A check sum of the value of each Parameter, by name."""
    return {
        f"the value of parameter {name}": zlib.crc32(parameter.numpy().tobytes())
        for name, parameter in parameter_dict(model).items()
    }


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """All variables of a model by name, Parameters' by the Parameter's name."""
    leaves = {
        name: getattr(leaf, "unconstrained_variable", leaf)
        for name, leaf in parameter_dict(model).items()
    }
    known = {variable.ref() for variable in leaves.values()}
    others = {
        variable.name: variable for variable in model.variables if variable.ref() not in known
    }
    return {f"{type(model).__name__}{name}": variable for name, variable in leaves.items()} | others
