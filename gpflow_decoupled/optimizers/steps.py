"""Step sizes, negative precisions, reports of steps."""

# Where a log likelihood is not concave a full step may not end at a covariance. Policies:
#
# - "damp": halve the step until it ends at a covariance; negative precisions are allowed.
# - "clip": replace negative precisions by zero. Every step succeeds, but the optimum is lower.
# - "raise": refuse the step with a `NumericalError`.

from __future__ import annotations

__all__ = [
    "MAX_HALVINGS", "POLICIES", "StepReport", "StepSize", "clip_curvature", "largest_feasible_step",
    "step_size_at",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..summaries import html_table, one_line, short_repr

POLICIES = ("damp", "clip", "raise")
MAX_HALVINGS = 30
"""Halvings of a step before it is given up: 2^-30 of a step changes nothing."""

StepSize = float | Callable[[int], float]
"""A number in (0, 1], or a function from the step number 0, 1, ... to one."""


class StepReport(NamedTuple):
    """Report of one step of `NaturalGradient`, `ConjugateComputation` or `MeanFieldCVI`.

    Example::

        report = NaturalGradient().minimize(model, (X, Y))
        print(bool(report.ok), int(report.shortened), int(report.clipped))
    """

    ok: tf.Tensor
    """[], bool: whether the step was taken; False if a matrix or a number is not usable."""
    shortened: tf.Tensor
    """[], int: halvings of the step, or parts of q with a shortened step."""
    clipped: tf.Tensor
    """[], int: negative precisions replaced by zero, by the policy "clip"."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


def step_size_at(step_size: StepSize, step: int) -> float:
    """The size in (0, 1] of step 0, 1, ...; `step_size` is a number or a function of the step."""
    value = step_size(step) if callable(step_size) else step_size
    try:
        number = math.nan if isinstance(value, (bool, np.bool_, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number <= 1.0:
        raise DataError(
            f"step_size={short_repr(value)} at step {step} must be a number above 0 and at most 1."
        )
    return number


def clip_curvature(h: tf.Tensor, policy: str) -> tuple[tf.Tensor, tf.Tensor]:
    """h = dE/dvariance [N, L] under the policy, and the number clipped, a scalar."""
    # A full step gives observation n a site of precision -2 h_n, negative where h_n > 0.
    if policy != "clip":
        return h, tf.constant(0)
    return tf.minimum(h, 0.0), tf.math.count_nonzero(h > 0, dtype=tf.int32)


def largest_feasible_step(
    feasible: Callable[[tf.Tensor], tf.Tensor], step_size: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first feasible one of step_size [], step_size / 2, step_size / 4, ...

    :param feasible: returns [] bool, true if a step of size [] ends at a distribution.
    :return: the step size [], and whether it is feasible after `MAX_HALVINGS`, [] bool.
    """

    def must_halve(step: tf.Tensor, ok: tf.Tensor) -> tf.Tensor:
        return tf.logical_not(ok) & (step > step_size * 0.5**MAX_HALVINGS)

    def halve(step: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return 0.5 * step, feasible(0.5 * step)

    return tf.while_loop(must_halve, halve, (step_size, feasible(step_size)))
