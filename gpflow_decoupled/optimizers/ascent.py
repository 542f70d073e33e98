"""The loop of optimizers that watch the bound."""

from __future__ import annotations

__all__ = [
    "Ascent", "CONVERGED", "Climber", "ConjugateResult", "DampedUpdate", "EvidenceResult",
    "INTERRUPTED", "MAX_HALVINGS", "POLICIES", "Point", "Probe", "Recorder", "RunResult", "STUCK",
    "SiteRecorder", "StepReport", "StepSize", "ascend", "clip_curvature", "has_fallen",
    "largest_feasible_step", "round_off", "step_size_at",
]  # fmt: skip

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

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


@dataclass(kw_only=True, repr=False)
class ConjugateResult(RunResult):
    """Result of `ConjugateComputation.run`, `sweep` or `MeanFieldCVI.run`.

    `history` has one entry per kept step: "step", "seconds", "step_size", "change" (squared
    distance of the sites, or messages, from a full step) and "elbo" (nats; on minibatches at the
    end of each epoch, else NaN).

    Example::

        result = ConjugateComputation().run(model)
        print(result)
        plt.plot(result.history["seconds"], result.history["elbo"])
    """

    shortened_steps: int = 0
    """Number of halvings, for a posterior to exist or because the bound had fallen."""
    clipped_sites: int = 0
    """Negative precisions replaced by zero: over all steps, or of Laplace's final q(f)."""

    def __str__(self) -> str:
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return super().__str__() + extra


@dataclass(kw_only=True, repr=False)
class EvidenceResult(ConjugateResult):
    """Result of `ExpectationPropagation.run` or `LaplaceApproximation.run`.

    `history` has arrays [steps], one entry per kept step: "step", "seconds", "step_size", "change"
    (compared with the tolerance), "evidence_estimate" and "elbo" (nats, after the step).

    Example::

        result = ExpectationPropagation().run(model)
        print(result.evidence_estimate, result.elbo, result.converged)
    """

    evidence_estimate: float
    """The method's estimate of the log evidence in nats, above or below the truth; NaN if an EP
    cavity has no variance.
    """
    skipped_sites: int = 0
    """Site updates left out because a cavity had no variance, over all steps."""

    def __str__(self) -> str:
        estimate = f", log evidence estimated as {self.evidence_estimate:.6g} (no bound), ELBO "
        extra = f", {self.skipped_sites} skipped sites" if self.skipped_sites else ""
        return super().__str__().replace(", ELBO ", estimate, 1) + extra


class SiteRecorder(Recorder):
    """The history of a run that moves sites or messages, and its counts."""

    def __init__(self, *more: str) -> None:
        super().__init__("step_size", "change", *more, "elbo")
        self.shortened = 0
        self.dropped = 0
        """Precisions that were clipped, or sites that were skipped."""

    def add(
        self, step_size: float, change: float, elbo: float, dropped: int = 0, **more: float
    ) -> None:
        """Record a kept step; `elbo` is NaN if not computed."""
        row = {"step_size": step_size, "change": change, "elbo": elbo, **more}
        self.append(len(self) + 1, **row)
        self.dropped += dropped

    def result(self, reason: str, elbo: float | None = None) -> ConjugateResult:
        """Return the result; `elbo` is by default the last bound recorded."""
        bounds = self.history["elbo"]
        known = [*bounds[np.isfinite(bounds)]] if elbo is None else [elbo]
        counts = {"shortened_steps": self.shortened, "clipped_sites": self.dropped}
        return self.finish(ConjugateResult, float([math.nan, *known][-1]), reason, **counts)


# ---


STUCK = "the bound does not rise any more"
_ROUND_OFF = 1e-10

Place = TypeVar("Place")
"""A q: its parameters, its bound, and anything that the next step needs."""


class Climber(Protocol[Place]):
    """The interface of an optimizer for `ascend`."""

    def propose(self, now: Place, step: int, share: float) -> Place:
        """Return the point after `share` of step number `step` from `now`."""

    def accept(self, now: Place, then: Place) -> bool:
        """Decide whether `then` replaces `now`; if so, write it to the model and record it."""

    def converged(self, now: Place) -> bool:
        """True if `now`, the start or an accepted proposal, can end the run."""


@dataclass(frozen=True)
class Ascent(Generic[Place]):
    """The end of a run of `ascend`."""

    now: Place
    """The last accepted point, or the start."""
    share: float
    """The share of its step size that the next step would take."""
    refused: Place | None
    """The last proposal, if refused."""
    reason: str
    """The reason, in words."""


def ascend(
    climber: Climber[Place],
    start: Place,
    steps: Iterable[int],
    *,
    max_halvings: int = MAX_HALVINGS,
    spent: str = "steps done",
) -> Ascent[Place]:
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


# ---
# The damped update of sites, q <- (1 - rho) q + rho goal(q).


class Probe(NamedTuple):
    """What a rule finds at some q, and where a full step leads."""

    elbo: tf.Tensor
    """[], nats."""
    ok: tf.Tensor
    """[], bool: the posterior exists and all numbers are finite."""
    goal: tuple[tf.Tensor, ...]
    """q after a full step, [N, L] each."""
    dropped: tf.Tensor
    """[], int: negative precisions that were clipped, or sites whose cavity has no variance."""
    change: tf.Tensor = None
    """[]: the length of a full step, where the rule measures it."""
    evidence: tf.Tensor = None
    """[], nats: the rule's estimate of the log evidence."""
    log_joint: tf.Tensor = None
    """[], nats: psi of (C55), which Laplace's approximation climbs."""
    sites: tuple[tf.Tensor, ...] | None = None
    """nu and tau [N, L], where q has other coordinates."""


class Point(NamedTuple):
    """A q of a `DampedUpdate`."""

    q: tuple[tf.Tensor, ...]
    probe: Probe
    size: float
    """Of the step that led here."""
    change: float
    """Compared with the tolerance."""
    before: Probe | None
    """Findings at that step's start."""


class DampedUpdate:
    """Damped steps of a model's sites, for `ascend`; each rule says what refuses and ends them.

    :param rule: the optimizer, whose settings subclasses read.
    :param model: with a basis of sites nu and tau.
    :param probe: (q [N, L] each, number of the step) -> `Probe`.
    :param tolerance: the `Point.change` at which a run ends.
    :param bar: the steps, shown or not.
    :param columns: fields of `Probe` to record beside the bound, by their name in the history.
    """

    def __init__(
        self,
        rule: Any,
        model: Any,
        probe: Callable[[tuple[tf.Tensor, ...], int], Probe],
        tolerance: float,
        bar: tqdm,
        **columns: str,
    ) -> None:
        self.rule, self.model, self.probe = rule, model, probe
        self.tolerance, self.bar = tolerance, bar
        self.columns, self.record = columns, SiteRecorder(*columns)
        self.round_off = round_off(model.float_type)

    def run(self, *q: tf.Tensor, failure: Callable[[], Exception]) -> Ascent[Point]:
        """Step from q; the model has the last accepted sites, also after an interrupt.

        :param failure: the error where q has no posterior.
        """
        probe = self.probe(q, 0)
        if not probe.ok:
            raise failure()
        return ascend(self, Point(q, probe, math.nan, self.length(None, probe), None), self.bar)

    def propose(self, now: Point, step: int, share: float) -> Point:
        """`share` of the step size from `now`."""
        size = share * self.size_at(step)
        q = tuple((1.0 - size) * was + size * goal for was, goal in zip(now.q, now.probe.goal))
        probe = self.probe(q, step + 1)  # (C13), (C52)
        return Point(q, probe, size, self.length(now, probe), now.probe)

    def accept(self, now: Point, then: Point) -> bool:
        """Write and record `then`, unless the rule refuses it."""
        probe = then.probe
        if self.refuses(now.probe, probe):
            self.record.shortened += 1
            return False
        more = {name: float(getattr(probe, field)) for name, field in self.columns.items()}
        elbo, dropped = float(probe.elbo), int(now.probe.dropped)
        self.record.add(then.size, then.change, elbo, dropped, **more)
        self.write(then)
        self.bar.set_postfix(ELBO=f"{elbo:.6g}", change=f"{then.change:.2g}")
        return True

    def write(self, point: Point) -> None:
        """Give the model the sites of a point."""
        nu, tau = point.q if point.probe.sites is None else point.probe.sites
        self.model.basis.nu.assign(nu)
        self.model.basis.tau.assign(tau)

    def size_at(self, step: int) -> float:
        """rho of step 0, 1, ..."""
        return 1.0

    def length(self, now: Point | None, probe: Probe) -> float:
        """The `Point.change` of a probe, None before the first step."""
        return float(probe.change)

    def refuses(self, before: Probe, after: Probe) -> bool:
        """True if the step is undone and halved."""
        return not after.ok

    def converged(self, now: Point) -> bool:
        """True if `now` can end the run."""
        return now.change <= self.tolerance
