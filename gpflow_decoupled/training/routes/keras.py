"""An optimizer of Keras on some of the variables of a model, uphill."""

from __future__ import annotations

__all__ = ["KerasAscent", "Optimizer"]

from collections.abc import Iterable, Sequence
from typing import Protocol

import tensorflow as tf


class Optimizer(Protocol):
    """What is needed of an optimizer; those of Keras 2 and of Keras 3 have it."""

    learning_rate: tf.Variable
    variables: Sequence[tf.Variable]

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Create the state for these variables."""
        ...

    def apply_gradients(self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]]) -> object:
        """Move each variable down its gradient."""
        ...


class KerasAscent:
    """Gradient ascent on `moved` by an optimizer, whose state is created here and not while a step is traced."""

    def __init__(self, optimizer: Optimizer, moved: Sequence[tf.Variable]) -> None:
        self.optimizer, self.moved = optimizer, list(moved)
        if self.moved:
            optimizer.build(self.moved)

    @property
    def variables(self) -> list[tf.Variable]:
        """What an ascent writes: the variables that it moves and the state of the optimizer."""
        states = [v if isinstance(v, tf.Variable) else v.value for v in self.optimizer.variables]  # Keras 3 wraps them
        return [*self.moved, *states]

    @property
    def name(self) -> str:
        """The optimizer with the version of Keras that it is of."""
        kind = type(self.optimizer)
        return f"{kind.__module__.split('.')[0]}.{kind.__name__}"

    def set_rate(self, rate: float) -> None:
        """Take the learning rate of the next step."""
        self.optimizer.learning_rate.assign(rate)

    def ascend(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Move each variable up its gradient, of the same shape; None stands for a gradient that does not exist."""
        pairs = [(-gradient, variable) for gradient, variable in zip(gradients, self.moved) if gradient is not None]
        if pairs:
            self.optimizer.apply_gradients(pairs)
