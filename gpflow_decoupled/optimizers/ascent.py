"""The loop of optimizers that watch the bound."""

from __future__ import annotations

__all__ = [
    "Ascent", "CONVERGED", "Climber", "INTERRUPTED", "MAX_HALVINGS", "POLICIES", "Recorder",
    "RunResult", "STUCK", "StepReport", "StepSize", "ascend", "clip_curvature", "has_fallen",
    "largest_feasible_step", "round_off", "step_size_at",
]  # fmt: skip

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..lbfgs import CONVERGED, INTERRUPTED
from ..summaries import html_table, one_line, short_repr

# ---
# Step sizes, negative precisions, reports of steps.


# Where a log likelihood is not concave a full step may not end at a covariance. Policies:
#
# - "damp": halve the step until it ends at a covariance; negative precisions are allowed.
# - "clip": replace negative precisions by zero. Every step succeeds, but the optimum is lower.
# - "raise": refuse the step with a `NumericalError`.


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


# ---
# Results and records of optimizers.


@dataclass(kw_only=True, repr=False)
class RunResult:
    """The fields that all results share; each optimizer adds its own.

    `history` has arrays [steps], one entry per recorded step, among them "step", "seconds" (since
    the start) and "elbo" (nats).
    """

    elbo: float
    """The model's bound after the run, in nats; NaN if never computed."""
    steps: int
    seconds: float
    """Wall-clock time of the run, compilation included."""
    history: dict[str, np.ndarray]
    converged: bool
    """True if the tolerance was reached."""
    reason: str
    """Why the run ended."""

    def __str__(self) -> str:
        return (
            f"{self.steps} steps in {self.seconds:.2f} s, ELBO {self.elbo:.6g}, stopped:"
            f" {self.reason}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return html_table(type(self).__name__, values)


Result = TypeVar("Result", bound=RunResult)


class Recorder:
    """The history of a running optimizer: one row per recorded step."""

    def __init__(self, *columns: str) -> None:
        self.columns = ("step", "seconds", *columns)
        self.rows: list[tuple[float, ...]] = []
        self._began = time.perf_counter()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def seconds(self) -> float:
        """Wall-clock time since the recorder was made."""
        return time.perf_counter() - self._began

    def append(self, step: int, **values: float) -> None:
        """Record one step; `values` has every column, NaN if unknown."""
        self.rows.append((step, self.seconds, *(float(values[name]) for name in self.columns[2:])))

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The columns as arrays [rows]."""
        table = np.array(self.rows, dtype=float).reshape(-1, len(self.columns)).T
        return dict(zip(self.columns, table))

    def finish(
        self, kind: Callable[..., Result], elbo: float, reason: str, **own: object
    ) -> Result:
        """Return the result of class `kind`, converged if `reason` says so.

        :param elbo: the bound at the end, in nats.
        """
        return kind(
            elbo=elbo,
            steps=len(self),
            seconds=self.seconds,
            history=self.history,
            converged=reason == "converged",
            reason=reason,
            **own,
        )


# ---


STUCK = "the bound does not rise any more"
_ROUND_OFF = 1e-10

Point = TypeVar("Point")
"""A q: its parameters, its bound, and anything that the next step needs."""


class Climber(Protocol[Point]):
    """The interface of an optimizer for `ascend`."""

    def propose(self, now: Point, step: int, share: float) -> Point:
        """Return the point after `share` of step number `step` from `now`."""

    def accept(self, now: Point, then: Point) -> bool:
        """Decide whether `then` replaces `now`; if so, write it to the model and record it."""

    def converged(self, now: Point) -> bool:
        """True if `now`, the start or an accepted proposal, can end the run."""


@dataclass(frozen=True)
class Ascent(Generic[Point]):
    """The end of a run of `ascend`."""

    now: Point
    """The last accepted point, or the start."""
    share: float
    """The share of its step size that the next step would take."""
    refused: Point | None
    """The last proposal, if refused."""
    reason: str
    """The reason, in words."""


def ascend(
    climber: Climber[Point],
    start: Point,
    steps: Iterable[int],
    *,
    max_halvings: int = MAX_HALVINGS,
    spent: str = "steps done",
) -> Ascent[Point]:
    """Step until the climber has converged, steps are used up, or none is accepted.

    :param steps: numbers, a progress bar for example; refused steps count too.

    :return: the last point and the reason: `CONVERGED`, `STUCK` or `spent`.
    """
    # 1. Propose a step of `share` times the step size, initially 1.
    # 2. If accepted, go on from there, and double the share up to 1.
    # 3. If not, halve the share. Give up below 2^-max_halvings.
    now, share, refused = start, 1.0, None
    if climber.converged(now):
        return Ascent(now, share, refused, CONVERGED)
    for step in steps:
        then = climber.propose(now, step, share)
        if climber.accept(now, then):
            now, share, refused = then, min(1.0, 2.0 * share), None
            if climber.converged(now):
                return Ascent(now, share, refused, CONVERGED)
        else:
            share, refused = 0.5 * share, then
            if share < 0.5**max_halvings:
                return Ascent(now, share, refused, STUCK)
    return Ascent(now, share, refused, spent)


def round_off(dtype: tf.DType) -> float:
    """Relative decrease of a bound that is round-off: 1000 machine epsilons, at least 1e-10."""
    return max(_ROUND_OFF, 1e3 * float(np.finfo(dtype.as_numpy_dtype).eps))


def has_fallen(
    before: float, after: float, *, relative: float = _ROUND_OFF, absolute: float = 0.0
) -> bool:
    """True if a bound in nats has fallen by more than `relative` of itself plus `absolute`, or is
    NaN.
    """
    return not after >= before - (relative * abs(before) + absolute)
