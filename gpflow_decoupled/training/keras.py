"""Gradient ascent by a Keras optimizer."""

from __future__ import annotations

__all__ = [
    "DEFAULT_RATE", "KerasAscent", "Optimizer", "check_optimizer", "hyperparameters_of",
    "refuse_clipping", "state_of", "sums_by_itself",
]  # fmt: skip

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, Protocol

import tensorflow as tf
from gpflow.keras import tf_keras

from .. import replicas
from ..errors import DataError, UnknownOptionError
from ..inputs import is_number
from ..models import FullGP
from ..optimizers.adam import Slots, adam_step, slots_of

DEFAULT_RATE = 0.03
"""The learning rate of Adam."""


class Optimizer(Protocol):
    """Methods of Keras 2 and Keras 3 optimizers that `fit` calls."""

    learning_rate: tf.Variable
    variables: Sequence[tf.Variable]

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Create the state for these variables."""
        ...

    def apply_gradients(
        self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]], **options: bool
    ) -> object:
        """Move each variable down its gradient."""
        ...


class KerasAscent:
    """Gradient ascent on `moved` by an optimizer, whose state is created before tracing."""

    def __init__(self, optimizer: Optimizer, moved: Sequence[tf.Variable]) -> None:
        self.optimizer, self.moved = optimizer, list(moved)
        if self.moved:
            optimizer.build(self.moved)
        self._slots: Slots | None = slots_of(optimizer, self.moved)

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables that an ascent moves, and the state of the optimizer."""
        return [*self.moved, *state_of(self.optimizer)]

    @property
    def fits_into_loops(self) -> bool:
        """True for plain Adam, one operation per variable, which a TensorFlow loop may hold."""
        is_of_keras_2 = isinstance(self.optimizer, tf_keras.optimizers.Optimizer)
        return self._slots is not None or (is_of_keras_2 and not self.moved)

    @property
    def name(self) -> str:
        """The optimizer's name with its version of Keras."""
        kind = type(self.optimizer)
        return f"{kind.__module__.split('.')[0]}.{kind.__name__}"

    def set_rate(self, rate: float | tf.Tensor) -> None:
        """Take the learning rate of the next step, a scalar."""
        self.optimizer.learning_rate.assign(tf.cast(rate, self.optimizer.learning_rate.dtype))

    def ascend(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Move each variable up its gradient, of the same shape, if any."""
        # On several replicas gradients are already sums; the optimizer must not sum again.
        # Keras descends
        pairs = [
            (-gradient, variable)
            for gradient, variable in zip(gradients, self.moved)
            if gradient is not None
        ]
        if not pairs:
            return
        if replicas.count() == 1 and self._slots is not None and len(pairs) == len(self.moved):
            adam_step(self._slots, pairs)
        elif replicas.count() == 1:
            self.optimizer.apply_gradients(pairs)
        elif sums_by_itself(self.optimizer):
            self.optimizer.apply_gradients(
                [(replicas.share(gradient), variable) for gradient, variable in pairs]
            )
        else:
            self.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)


def hyperparameters_of(model: FullGP) -> list[tf.Variable]:
    """Return the trainable variables beside q, which the rule of its family moves."""
    of_q = {variable.ref() for variable in model.basis.variables}
    return [variable for variable in model.trainable_variables if variable.ref() not in of_q]


def state_of(optimizer: Optimizer) -> list[tf.Variable]:
    """Return the variables of an optimizer, which Keras 3 wraps."""
    return [v if isinstance(v, tf.Variable) else v.value for v in optimizer.variables]


def sums_by_itself(optimizer: Optimizer) -> bool:
    """True for Keras 3 optimizers, which always sum the gradients of all replicas."""
    return not hasattr(optimizer, "aggregate_gradients")


def refuse_clipping(optimizer: Optimizer) -> None:
    """Raise `UnknownOptionError` for Keras 3 clipping, which acts before the sum over replicas."""
    names = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps")
    used = [name for name in names if getattr(optimizer, name, None)]
    if used and sums_by_itself(optimizer):
        raise UnknownOptionError(
            f"{used[0]} of a Keras 3 optimizer acts on the gradients of each replica before they"
            f" are added up; use one of gpflow.keras.tf_keras.optimizers, or leave {used[0]} out."
        )


def check_optimizer(optimizer: object) -> None:
    """Require a new Keras 2 or Keras 3 optimizer whose learning rate is a number."""
    kind = type(optimizer).__name__
    needed = ("build", "apply_gradients", "iterations", "get_config")
    parts: list[Any] = [getattr(optimizer, name, None) for name in needed]
    if any(part is None for part in parts) or not isinstance(
        getattr(optimizer, "variables", None), (list, tuple)
    ):
        raise DataError(
            f"optimizer is a {kind}, which fit cannot drive; pass an instance from"
            " gpflow.keras.tf_keras.optimizers (not from its legacy module) or"
            " tf.keras.optimizers. Models on inducing points, and CVIGP, with Gaussian noise"
            " take 'lbfgs', too."
        )
    *_, iterations, get_config = parts
    config = get_config()
    if "learning_rate" not in config:
        raise DataError(
            f"optimizer is a {kind}, which has no learning rate of its own; pass the optimizer"
            " inside of it."
        )
    if not isinstance(config["learning_rate"], Real):
        raise DataError(
            f"The learning rate of this {kind} is a schedule, and fit anneals it by itself; pass a"
            " number to the optimizer."
        )
    if not (is_number(config["learning_rate"]) and config["learning_rate"] >= 0.0):
        raise DataError(
            f"The learning rate of this {kind} is {config['learning_rate']}; it must be at least 0."
        )
    if int(tf.convert_to_tensor(iterations)) > 0:
        raise DataError(
            f"This {kind} was used before and has the state of other variables; pass a new"
            " instance."
        )
