"""Which options of `fit` a caller has chosen, and the check of an optimizer."""

from __future__ import annotations

__all__ = ["check_optimizer", "chosen", "given"]

from collections.abc import Mapping
from numbers import Real
from typing import Any

import tensorflow as tf

from ..errors import DataError
from ..inputs import is_number

NOT_CHOSEN: dict[str, object] = {"batch_size": "auto", "natural_gradient": "auto"}
"""The values that stand for "not chosen", where None has a meaning of its own."""


def chosen(options: Mapping[str, object]) -> dict[str, object]:
    """The options that differ from the value which stands for "not chosen", by name."""
    return {
        name: value
        for name, value in options.items()
        if not (isinstance(value, str) and value == NOT_CHOSEN.get(name))
        and not (value is None and name not in NOT_CHOSEN)
    }


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None, for `inputs.check_whole` and `inputs.check_rate`, where None
    is a default.
    """
    return {name: value for name, value in options.items() if value is not None}


def check_optimizer(optimizer: object) -> None:
    """Refuse what is not a new Keras 2 or Keras 3 optimizer whose learning rate is a number.

    :raises DataError: with what to pass instead.
    """
    kind = type(optimizer).__name__
    needed = ("build", "apply_gradients", "iterations", "get_config")
    parts: list[Any] = [
        getattr(optimizer, name, None) for name in needed
    ]  # of an object that may be anything
    if any(part is None for part in parts) or not isinstance(
        getattr(optimizer, "variables", None), (list, tuple)
    ):
        raise DataError(
            f"optimizer is a {kind}, which fit cannot drive; pass an instance from"
            " gpflow.keras.tf_keras.optimizers (not from its legacy module) or"
            " tf.keras.optimizers. Models on inducing points with Gaussian noise take 'lbfgs',"
            " too."
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
