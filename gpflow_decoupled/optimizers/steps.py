"""What the step-wise optimizers share: step sizes, what happens at negative precisions, and the
report of a step.

Where a log likelihood is not concave, the best Gaussian site of an observation can have a negative
precision, and then a full step need not end at a covariance. Each optimizer takes one of three
policies for this:

- "damp": halve the step until it ends at a covariance. The optimum is the same, and negative
  precisions are allowed.
- "clip": replace the negative precisions by zero. Every step then succeeds, but the optimum is
  another, lower one.
- "raise": refuse the step with a `NumericalError`.
"""

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
"""A step is halved at most so often; 2^-30 of it changes next to nothing."""

StepSize = float | Callable[[int], float]
"""A number in (0, 1], or a function from the number of the step, 0, 1, ..., to one."""


class StepReport(NamedTuple):
    """What one step of `NaturalGradient`, `ConjugateComputation` or `MeanFieldCVI` did.

    Example::

        report = NaturalGradient().minimize(model, (X, Y))
        print(bool(report.ok), int(report.shortened), int(report.clipped))
    """

    ok: tf.Tensor
    """[], bool: whether the step was taken. It is not if a factorisation fails or a number is not
    finite.
    """
    shortened: tf.Tensor
    """[], int: how often, or for how many parts of q, the step was shortened to end at a
    distribution.
    """
    clipped: tf.Tensor
    """[], int: how many negative precisions were replaced by zero, by the policy "clip"."""

    def __repr__(self) -> str:
        """One line, with arrays by their shape."""
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        """A table of all fields for notebooks."""
        return html_table(type(self).__name__, self._asdict())


def step_size_at(step_size: StepSize, step: int) -> float:
    """The step size of step 0, 1, ..., a number in (0, 1].

    :param step_size: that number, or a function of the step.
    :param step: the number of the step.
    :raises DataError: if it is anything else.
    """
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
    """The derivatives h = dE/dvariance [N, L] as the policy has them, and how many were clipped, a
    scalar.

    A full step gives observation n a site of precision -2 h_n, which is negative where h_n is
    positive.
    """
    if policy != "clip":
        return h, tf.constant(0)
    return tf.minimum(h, 0.0), tf.math.count_nonzero(h > 0, dtype=tf.int32)


def largest_feasible_step(
    feasible: Callable[[tf.Tensor], tf.Tensor], step_size: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first of step_size, step_size / 2, step_size / 4, ... that is feasible, and whether there
    is one.

    :param feasible: a function of a step size []: whether the step ends at a distribution, [] bool.
    :param step_size: [], the step that is wanted.
    :return: the step size [], and [] bool; after `MAX_HALVINGS` halvings it gives up.
    """

    def must_halve(step: tf.Tensor, ok: tf.Tensor) -> tf.Tensor:
        return tf.logical_not(ok) & (step > step_size * 0.5**MAX_HALVINGS)

    def halve(step: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return 0.5 * step, feasible(0.5 * step)

    return tf.while_loop(must_halve, halve, (step_size, feasible(step_size)))
