"""Settings of topic models, and their checks."""

from __future__ import annotations

__all__ = ["Settings", "check_prior", "check_settings", "check_whole"]

from numbers import Integral, Real
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import DataError, check_option
from ..summaries import short_repr

METHODS = ("batch", "stochastic")
STARTS = ("documents", "random")


class Settings(Protocol):
    """Constructor arguments of all topic models; see `LatentDirichletAllocation`."""

    num_topics: int
    topic_prior: npt.ArrayLike | None
    learn_topic_prior: bool
    method: str
    max_passes: int
    tolerance: float
    fresh_passes: int
    max_local_steps: int
    local_tolerance: float
    start: str
    batch_size: int
    delay: float
    forgetting_rate: float
    num_documents: int | None
    seed: int
    progress: bool


def check_settings(settings: Settings) -> None:
    """Check the arguments that all topic models share."""
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
        _check_number(
            name, getattr(settings, name), 0.0, np.inf, "a number of at least 0", closed=True
        )
    text = "a number in (0.5, 1], without which the steps do not converge"
    _check_number("forgetting_rate", settings.forgetting_rate, 0.5, 1.0, text, closed=False)


def check_prior(name: str, value: npt.ArrayLike | None, size: int, default: float) -> np.ndarray:
    """Return a prior, a number, an array [size] or None for the default, as an array [size]."""
    try:
        prior = np.asarray(default if value is None else value, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}={short_repr(value)} must be a number or an array: {error}."
        ) from error
    if prior.shape not in ((), (size,)):
        raise DataError(
            f"{name} has shape {prior.shape}; it must be a number or have shape ({size},)."
        )
    if not (np.isfinite(prior) & (prior > 0.0)).all():
        raise DataError(f"{name} must be finite and above 0; it is {short_repr(value)}.")
    return np.full(size, prior)


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `DataError` unless `value` is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{name}={short_repr(value)} must be a whole number of at least {least}.")


def _check_number(
    name: str, value: object, low: float, high: float, text: str, closed: bool
) -> None:
    number = float(value) if isinstance(value, Real) else np.nan
    if not (low <= number if closed else low < number) or not number <= high or np.isinf(number):
        raise DataError(f"{name}={short_repr(value)} must be {text}.")
