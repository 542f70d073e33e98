"""What `fit` refuses before the first step: numbers that make no sense, and optimizers it cannot drive."""

from __future__ import annotations

__all__ = ["check_callbacks", "check_counts", "check_optimizer", "check_rates", "check_roles"]

import math
from numbers import Integral, Real
from typing import Any

from ..errors import DataError, UnknownOptionError
from ..models import BasisGP


def check_counts(low: int, **counts: Any) -> None:
    """Raise `DataError` unless each is None or a whole number of at least `low`."""
    for name, value in counts.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < low):
            raise DataError(f"{name}={value!r} must be a whole number of at least {low}.")


def check_rates(high: float = math.inf, **rates: Any) -> None:
    """Raise `DataError` unless each is None or a finite number above 0, and at most `high`."""
    for name, value in rates.items():
        if value is None:
            continue
        if not isinstance(value, Real) or not 0 < float(value) <= high or math.isinf(value):
            limit = "" if math.isinf(high) else f" and at most {high:g}"
            raise DataError(f"{name}={value!r} must be a number above 0{limit}.")


def check_callbacks(callbacks: Any) -> None:
    """Raise `DataError` unless it is a sequence of functions."""
    if not isinstance(callbacks, (list, tuple)) or not all(callable(callback) for callback in callbacks):
        raise DataError(
            "callbacks must be a list of functions of (step, metrics, model), or of gpflow.monitor.Monitor."
        )


def check_optimizer(optimizer: Any) -> None:
    """Raise `DataError` unless it is a fresh Keras 2 or Keras 3 optimizer whose learning rate is a number."""
    kind = type(optimizer).__name__
    needed = ("build", "apply_gradients", "iterations")
    if any(not hasattr(optimizer, name) for name in needed) or not isinstance(optimizer.variables, (list, tuple)):
        raise DataError(
            f"optimizer is a {kind}, which fit cannot drive; pass an instance from gpflow.keras.tf_keras.optimizers "
            "(not from its legacy module) or tf.keras.optimizers."
        )
    if not isinstance(optimizer.get_config()["learning_rate"], Real):
        raise DataError(
            f"The learning rate of this {kind} is a schedule, and fit anneals it by itself; pass a number to the optimizer."
        )
    if int(optimizer.iterations) > 0:
        raise DataError(f"This {kind} was used before and holds the state of other variables; pass a new instance.")


def check_roles(view: BasisGP, natural_gradient: float | None, mean_solver: str) -> None:
    """Raise unless the flags of q and the choice of solvers agree: natural gradients move all of q(u), or none of it."""
    basis = view.basis
    flags = [parameter.trainable for parameter in basis.gaussian_parameters()]
    if natural_gradient is not None and any(flags) and not all(flags):
        raise DataError(
            "Some Parameters of q(u) are trainable and some are not, and natural gradients move them together: set the same "
            "flag on all of them, or pass natural_gradient=None."
        )
    if not view.trainable_variables:
        raise DataError("No Parameter of the model is trainable; use gpflow.utilities.set_trainable(model, True).")
    if mean_solver == "adam" or basis.kernel_mean is None:
        return
    if natural_gradient is None:
        raise UnknownOptionError(
            f'mean_solver={mean_solver!r} needs natural_gradient; give a step size, or use "adam".'
        )
    if mean_solver == "newton" and not basis.solves_mean:
        raise UnknownOptionError(
            f'mean_solver="newton" is for OrthogonalBasis, not {type(basis).__name__}; use "adam" or "natural".'
        )
    if basis.kernel_mean.coefficients.trainable and flags and not any(flags):
        raise DataError(
            f'mean_solver={mean_solver!r} moves q(u) too, which is not trainable here; use mean_solver="adam", or make it so.'
        )
