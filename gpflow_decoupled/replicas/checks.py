"""What would be wrong on several replicas without any message, refused before anything runs."""

from __future__ import annotations

__all__ = [
    "apply_trainable",
    "check_strategy",
    "group_of",
    "named_variables",
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
"""For strategies whose class has this in its name, why they are refused."""


def check_strategy(strategy: object, variables: Iterable[tf.Variable] = ()) -> None:
    """Refuse a strategy whose replicas do not take each step together, and one that was used and
    not passed.

    :param strategy: what a user passed.
    :param variables: of the model, of any shapes [...].
    :raises DataError: unless it is a `MirroredStrategy` or a `MultiWorkerMirroredStrategy`, or None
        outside of a scope of several replicas and with variables that no strategy mirrors.

    Example::

        check_strategy(tf.distribute.MirroredStrategy())
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
    """Refuse variables of which a strategy has no copy for each replica.

    :param strategy: that trains them; None refuses nothing.
    :param variables: by the names that users know, of any shapes [...].
    :param fix: what to do, the end of the message.
    :raises DataError: with the name of the first of them.
    """
    for name, variable in variables.items():
        if strategy is not None and not strategy.extended.variable_created_in_scope(variable):
            raise DataError(f"{name} was created outside of the scope of this strategy: {fix}")


def apply_trainable(variables: Iterable[tf.Variable]) -> None:
    """Let `gpflow.set_trainable` have its effect on mirrored variables, whose copies keep the flag
    that they were made with.

    GPflow writes the flag to the mirrored variable, and TensorFlow reads that of its first copy.

    :param variables: of a model, of any shapes [...]; those that no strategy mirrors stay as they
        are.

    Example::

        with strategy.scope():
            kernel = gpflow.kernels.Matern52()
            gpflow.set_trainable(kernel, False)
        apply_trainable(kernel.variables)
        assert not kernel.trainable_variables
    """
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues):
            flag = getattr(variable, "_trainable", variable.trainable)
            for copy in variable.values:
                copy._trainable = flag


def group_of(model: tf.Module, strategy: tf.distribute.Strategy | None) -> Group:
    """The workers of a strategy that is to move a model.

    :param model: that a user passed.
    :param strategy: that was passed with it, or None.
    :raises DataError: for a strategy that does not work here, or that has no copies of the
    variables of the model.
    """
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
    """Refuse workers with another model, other data or other settings than the first one.

    :param group: the workers of the run.
    :param model: all of whose Parameters are compared.
    :param arrays: the data, X [N, D] and Y [N, P].
    :param settings: what JSON can write, by the same names on all workers.
    :raises DataError: on all of them, with the first name that differs.
    """
    parameters = parameter_dict(model)
    group.refuse_unlike({"the names of the Parameters": list(parameters), "the settings": settings})
    digests = {
        f"parameter {name}": zlib.crc32(one.numpy().tobytes()) for name, one in parameters.items()
    }
    data = [zlib.crc32(np.ascontiguousarray(array).tobytes()) for array in arrays]
    group.refuse_unlike({"the number of rows": len(arrays[0]), "the data": data, **digests})


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """All variables of a model, those of Parameters by the names of these.

    Example::

        fix = "build the model inside of `with strategy.scope():`."
        refuse_elsewhere(strategy, named_variables(model), fix)
    """
    leaves = {
        name: getattr(leaf, "unconstrained_variable", leaf)
        for name, leaf in parameter_dict(model).items()
    }
    known = {variable.ref() for variable in leaves.values()}
    others = {
        variable.name: variable for variable in model.variables if variable.ref() not in known
    }
    return {f"{type(model).__name__}{name}": variable for name, variable in leaves.items()} | others
