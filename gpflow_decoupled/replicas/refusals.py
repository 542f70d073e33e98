"""Refusals of silent failures on several replicas."""

from __future__ import annotations

__all__ = [
    "apply_trainable",
    "check_strategy",
    "group_of",
    "named_variables",
    "parameter_digests",
    "refuse_elsewhere",
    "refuse_other_workers",
]

import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from ..errors import DataError
from .group import Group

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
