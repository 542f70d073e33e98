"""What topic models refuse before any work: numbers that make no sense."""

from __future__ import annotations

__all__ = ["check_prior", "check_settings", "check_whole"]

from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import DataError, check_option

METHODS = ("batch", "stochastic")
STARTS = ("documents", "random")


def check_settings(settings: Any) -> None:
    """Raise `DataError` or `UnknownOptionError` unless the arguments that all topic models share are sound."""
    check_option("method", settings.method, METHODS)
    check_option("start", settings.start, STARTS)
    for name, least in (
        ("num_topics", 1),
        ("max_passes", 1),
        ("fresh_passes", 0),
        ("max_local_steps", 1),
        ("batch_size", 1),
    ):
        check_whole(name, getattr(settings, name), least)
    if settings.num_documents is not None:
        check_whole("num_documents", settings.num_documents, 1)
    for name in ("tolerance", "local_tolerance", "delay"):
        _check_number(name, getattr(settings, name), 0.0, np.inf, "a number of at least 0", closed=True)
    text = "a number in (0.5, 1], without which the steps do not converge"
    _check_number("forgetting_rate", settings.forgetting_rate, 0.5, 1.0, text, closed=False)


def check_prior(name: str, value: Any, size: int, default: float) -> np.ndarray:
    """A prior as an array [size]: of a number, an array of that size, or None for the default.

    Raises `DataError` unless all are finite and above 0.
    """
    try:
        prior = np.asarray(default if value is None else value, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}={value!r} must be a number or an array: {error}.") from error
    if prior.shape not in ((), (size,)):
        raise DataError(f"{name} has shape {prior.shape}; it must be a number or have shape ({size},).")
    if not (np.isfinite(prior) & (prior > 0.0)).all():
        raise DataError(f"{name} must be finite and above 0; it is {value!r}.")
    return np.full(size, prior)


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise `DataError` unless a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{name}={value!r} must be a whole number of at least {least}.")


def _check_number(name: str, value: Any, low: float, high: float, text: str, closed: bool) -> None:
    number = float(value) if isinstance(value, Real) else np.nan
    if not (low <= number if closed else low < number) or not number <= high or np.isinf(number):
        raise DataError(f"{name}={value!r} must be {text}.")
