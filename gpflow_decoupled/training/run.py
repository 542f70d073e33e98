"""A run: turns of its stages, evaluations, checkpoints, and when to stop."""

from __future__ import annotations

__all__ = ["Beginning", "Run", "Scores"]

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import SupportsFloat

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..diagnostics import (
    check_digits,
    final_evidence,
    restored,
    warn_of_no_signal,
    warn_of_quadrature,
    warn_of_scales,
)
from ..diagnostics.trend import warn_of_fall, warn_of_last_rise, warn_of_rise
from ..errors import CheckpointError, DataError, NumericalError, WorkerError
from ..inducing.variables import point_values
from ..interrupts import all_or_nothing, noted, raise_swallowed
from ..lbfgs import EVALUATIONS_DONE, TIME_IS_UP
from ..models import BasisGP, FactorGraph, FullGP
from ..optimizers.ascent import INTERRUPTED
from ..optimizers.start import Start, check_parts, initialize
from ..user_warnings import warn_user
from .batches import ArrayBatches, Batches, DatasetBatches, DiskBatches, FunctionBatches
from .checkpoints import States
from .evaluation import metrics_of_all, refuse_other_run, run_settings
from .options import Options, ProgressLine
from .result import RECENT, FitResult, History, Totals
from .snapshots import Best
from .stages.stage import ROUNDS_DONE, Clock, Report
from .turns import Plan, Taken, Turns

# ---
# Checks and start of a run.


_SHARE = 0.1
"""Of a run by seconds, that a start may take."""
_ROWS = 10_000
"""At which the prior variance is computed at most."""


class Beginning:
    """Checks before the first step: scales of the data, digits, and values to start from.

    :param accept: tells the model about the data.
    """

    def __init__(
        self,
        model: BasisGP | FullGP | FactorGraph,
        batches: Batches,
        options: Options,
        accept: Callable[[], None],
    ) -> None:
        if not isinstance(model, FactorGraph):  # which has no kernel
            _check_digits(model, batches)
        self.accept = accept
        self.start: Start | None = None
        self._find = None if options.initialize is None else _start_of(model, batches, options)
        if self._find is None and not isinstance(model, FactorGraph):
            _look_at_scales(model, batches)

    def __call__(self, done: int) -> float:
        """Tell the model about the data and find the start; return its seconds.

        :param done: steps of an earlier run; with any, the start is skipped.
        """
        self.accept()
        if self._find is None or done:
            return 0.0
        self.start = self._find()
        return self.start.seconds


def _start_of(
    model: BasisGP | FullGP | FactorGraph, batches: Batches, options: Options
) -> Callable[[], Start]:
    if (
        not isinstance(batches, ArrayBatches)
        or not isinstance(model, BasisGP)
        or options.group.replicas > 1
    ):
        raise DataError(
            'initialize="auto" needs arrays X and Y in one process: call'
            " training.initialize(kernel, likelihood, (X, Y)) on some of the rows before the model"
            " is built."
        )
    check_parts(model.kernel, model.likelihood)
    seconds = np.inf if options.limits.seconds is None else _SHARE * options.limits.seconds
    beta = model.basis.beta if point_values(model.basis.beta) else None
    return lambda: initialize(
        model.kernel,
        model.likelihood,
        (batches.X, batches.Y),
        mean_function=model.mean_function,
        beta=beta,
        seed=options.seed,
        deadline=time.perf_counter() + seconds,
    )


def _check_digits(model: BasisGP | FullGP, batches: Batches) -> None:
    if isinstance(batches, ArrayBatches):
        check_digits(model, batches.X[:_ROWS])
    elif isinstance(batches, DiskBatches):
        check_digits(model, tf.constant(batches.sample[0]))


def _look_at_scales(model: BasisGP | FullGP, batches: Batches) -> None:
    if isinstance(batches, ArrayBatches):
        warn_of_scales(model, batches.X.numpy(), batches.Y.numpy(), batches.num_data)
    elif isinstance(batches, DiskBatches):
        warn_of_scales(model, *batches.sample, batches.num_data)
    elif isinstance(batches, (DatasetBatches, FunctionBatches)):
        batches.look = lambda X, Y: warn_of_scales(model, X, Y, batches.num_data)


# ---
# Held-out scores, and patience.


class Scores:
    """Evaluates the model, and counts evaluations since the best one."""

    def __init__(self, model: GPModel | FactorGraph, options: Options, history: History) -> None:
        self.model, self.history, self.group = model, history, options.group
        self.evaluation = options.evaluation
        self.best = Best()

    @property
    def patience(self) -> int | None:
        """Evaluations without a better score that end a run; None ends none."""
        return None if self.evaluation is None else self.evaluation.patience

    def out_of_patience(self, totals: Totals) -> bool:
        """True if that many evaluations have passed."""
        return self.patience is not None and totals.waited >= self.patience

    def is_due(self, done: int) -> bool:
        """True if there is an evaluation after this step."""
        return self.evaluation is not None and done % self.evaluation.every == 0

    def after(
        self, done: int, totals: Totals, variables: Sequence[tf.Variable]
    ) -> dict[str, float]:
        """Evaluate the model after a step, and compare with the best score."""
        assert self.evaluation is not None
        metrics = self.evaluate(done, totals.seconds)
        estimate = self.history.mean("elbo", self.evaluation.every)
        score = self.group.first(metrics.get("log_density", estimate))
        if not np.isfinite(score):
            warn_user(
                f"The score after step {done} is {score}, and is not taken for a lack of"
                " improvement."
            )
            return metrics
        totals.waited += 1
        if score > totals.best:
            totals.best, totals.best_step, totals.waited = score, done, 0
            if self.patience is not None and self.evaluation.restore_best:
                self.best.take(variables)
        return metrics

    def evaluate(self, done: int, seconds: float) -> dict[str, float]:
        """Score the model on the held-out data, if there are any."""
        if self.evaluation is None or self.evaluation.data is None:
            return {}
        metrics = metrics_of_all(
            self.group, self.model, self.evaluation.data, self.evaluation.units
        )
        self.history.append(evaluation_step=done, evaluation_seconds=seconds, **metrics)
        return metrics

    def at_the_end(self, done: int, seconds: float, step: int) -> None:
        """Evaluate, unless the last step did."""
        last = self.history.tail("evaluation_step", 1)
        if not last or last[0] != done:
            self.evaluate(step, seconds)


# ---


_LIMITS = ("steps done", TIME_IS_UP)
_UNFINISHED = (*_LIMITS, EVALUATIONS_DONE, ROUNDS_DONE)
"""Reasons for which a run ends although a stage may have more to do; then with those of L-BFGS."""
_FAILURES: dict[type, str] = {
    DataError: "unusable data",
    NumericalError: "numerical failure",
    WorkerError: "a worker failed",
}
"""Reasons for which a run ends by an error."""
_REMEDY = (
    "Call fit again, or give it more steps or seconds; an evaluation with patience ends a run by"
    " itself."
)
SPOILT = "; the last step was undone, because the bound after it is not finite"


class Run:
    """Takes turns of the stages until a limit is reached, and undoes failed ones.

    :param model: as callbacks and evaluations see it.
    :param begin: runs before the first step; its seconds count.
    :param shift: nats by which bounds are shown less, asked once the model knows its data.
    """

    def __init__(
        self,
        model: GPModel | FactorGraph,
        plan: Plan,
        options: Options,
        begin: Beginning,
        shift: Callable[[], SupportsFloat],
    ) -> None:
        self.model, self.plan, self.options, self._begin = model, plan, options, begin
        self._shift = shift
        self.group, self.limits = options.group, options.limits
        self.history, self.totals = History(), Totals()
        self._scores = Scores(model, options, self.history)
        self._states = self._kept_states()
        self._turns = Turns(model, plan, options)
        self._report: Report | None = None
        self._before: tuple[float, ...] = ()
        self._compile_seconds = 0.0
        self._restored_step: int | None = None

    def _kept_states(self) -> States | None:
        if self.options.checkpoint is None:
            return None
        return States(
            self.options.checkpoint.folder,
            {"model": self.model, **self.plan.checkpointable},
            self.plan.batches.checkpointable,
            self._settings(),
            self.group,
            self.plan.closing is not None,
            self.history,
            self._scores.best,
        )

    def _settings(self) -> dict[str, object]:
        parts = {"seed": self.options.seed, **self.plan.settings}
        return run_settings(self.model, parts, self.options.refresh_every, self.group)

    def go(self) -> FitResult:
        """Train until a limit is reached."""
        if self.group.workers > 1:
            refuse_other_run(self.group, lambda: {**self._settings(), **asdict(self.limits)})
        with self._begun() as (done, line):
            try:
                began = time.perf_counter()
                if self._reason_to_stop(done) is None:
                    if self.plan.timed is not None:
                        self.plan = self._turns.plan = replace(self.plan, parts=self.plan.timed())
                    batch = self._turns.first_batch(done)
                    for part in self.plan.parts:
                        part.stage.prepare(*batch, self._turns.seed(done))
                self._compile_seconds = time.perf_counter() - began
                while (reason := self._reason_to_stop(done)) is None:
                    raise_swallowed()
                    began, clock = time.perf_counter(), self._clock(done, line)
                    taken = self._turns.take(done, clock, self.totals.seconds)
                    done += len(taken.elbo)
                    self._record(done, taken, time.perf_counter() - began)
                    self._after_turn(done, line)
            except KeyboardInterrupt:
                if self.group.workers > 1:  # the others wait, and notice when the process ends
                    raise
                reason = INTERRUPTED
            except (DataError, NumericalError, WorkerError) as error:
                error.result = self._result(done, _FAILURES[type(error)])
                raise
            return self._close(done, reason, line)

    @contextmanager
    def _begun(self) -> Iterator[tuple[int, ProgressLine]]:
        """Resume and begin with the checkpoints' folder locked; yield the steps done and a line."""
        lock = nullcontext() if self._states is None else self._states.locked()
        with closing(self.plan.batches), lock:
            done = self._resume()
            self.totals.seconds += self._begin(done)
            shown, limits = self.options.progress and self.group.is_first, self.limits
            line = ProgressLine(shown, limits.steps, limits.seconds, self.plan.objective)
            with closing(line), noted():
                yield done, line

    def _clock(self, done: int, line: ProgressLine) -> Clock:
        share = self.limits.share(done, self.totals.seconds)
        return Clock(share, self.limits, line.show, float(self._shift()))

    def _resume(self) -> int:
        """Steps of an earlier run; an empty folder gets a state, so that failures come early."""
        if self._states is None:
            return 0
        if (state := self._states.restore((*self.plan.variables, *self.model.variables))) is None:
            self._save(0)
            return 0
        done, self.totals = state
        if not self.totals.nothing_is_left(asdict(self.limits)):
            self.totals.finished, self.totals.converged = "", False
        if self._reason_to_stop(done) is not None:
            self.totals = self._states.restore_end(done) or self.totals
        return done

    def _reason_to_stop(self, done: int) -> str | None:
        if self.totals.finished:
            return self.totals.finished
        if self._scores.out_of_patience(self.totals):
            return f"no improvement in {self._scores.patience} evaluations"
        if self.limits.share(done, self.totals.seconds) < 1.0:
            return None
        steps = self.limits.steps
        return _LIMITS[0] if steps is not None and done >= steps else _LIMITS[1]

    def _record(self, done: int, taken: Taken, seconds: float) -> None:
        count, report, before = len(taken.elbo), taken.report, self.totals.seconds
        timed = self.limits.seconds is not None
        self.totals.seconds = self.group.first(before + seconds) if timed else before + seconds
        times = np.linspace(before, self.totals.seconds, count + 1)[1:]
        for k, elbo in enumerate(taken.elbo):
            self.history.append(step=done - count + k + 1, seconds=times[k], elbo=elbo)
        self.history.append(**report.scores)
        self.totals.shortened += int(np.sum(taken.shortened))
        self.totals.clipped += int(np.sum(taken.clipped))
        self.totals.refreshes += int(taken.refreshed)
        self._report, self._before = report, (*self._before, *report.before)
        # an earlier stage that ends makes way for the next one, and the run goes on
        if report.reason == INTERRUPTED or (report.reason and self._turns.is_in_last_stage):
            self.totals.finished, self.totals.converged = report.reason, report.converged

    def _after_turn(self, done: int, line: ProgressLine) -> None:
        options, metrics = self.options, dict[str, float]()
        if self._scores.is_due(done):
            metrics = self._scores.after(done, self.totals, self._turns.variables)
        is_long = self._report is not None and self._report.is_long
        if done % options.callbacks.every == 0 or metrics or is_long:
            recent = self.history.mean("elbo", 1 if is_long else options.callbacks.every)
            recent -= float(self._shift())
            line.update(done, self.totals.seconds, recent, **metrics)
            metrics = {"elbo": recent, **metrics}
            self.group.together(lambda: options.callbacks(done, metrics, self.model))
        kept = options.checkpoint
        if kept is not None and done % kept.every == 0 and self._reason_to_stop(done) is None:
            # a resumed run would begin at a state that is not finite, and could not go back
            self._turns.check(done)
            self._save(done)

    def _save(self, done: int, is_end: bool = False) -> None:
        if self._states is None:
            return
        # an interrupt is no reason to stay where it came
        finished = "" if self.totals.finished == INTERRUPTED else self.totals.finished
        totals = replace(self.totals, finished=finished, limits=asdict(self.limits))
        try:
            (self._states.save_end if is_end else self._states.save)(done, totals)
        except CheckpointError as error:
            error.result = self._result(done, "no checkpoint could be written")
            raise

    def _exact_bound(self) -> float | None:
        """The bound on all data in nats, NaN if it fails; None where they are not in memory."""
        if self._report is not None and self._report.is_exact and self._restored_step is None:
            return float(self._report.output.elbo)
        return self.plan.bound_on_all()

    def _close(self, done: int, reason: str, line: ProgressLine) -> FitResult:
        if self.totals.ended:
            line.close()
            return self._with_evidence(replace(self._result(done, reason), **self.totals.ended))
        exact, stopped = self._exact_bound(), self._scores.out_of_patience(self.totals)
        spoilt = not self._turns.is_sound(done, exact)
        if spoilt and (sound := self._turns.undo()) is not None:
            self._restored_step, reason = sound, reason + SPOILT
            warn_user(f"Step {done} left a bound that is not finite, and was undone.")
        elif not spoilt:
            self._save(done)
        if stopped and self._scores.best.put_back(self._turns.variables):
            self._restored_step = self.totals.best_step
        last = None
        if reason != INTERRUPTED:
            last, reason = self._closing(done, reason, line)
        line.close()
        step = done if self._restored_step is None else self._restored_step
        self._scores.at_the_end(done, self.totals.seconds, step)
        result = self._result(done, reason)
        # the Parameters have changed since the bound was computed
        if last is not None or self._restored_step is not None:
            exact = self._exact_bound()
        if exact is None:
            result.objective = self.plan.estimate
        elif done:
            result.elbo = exact
        if reason != INTERRUPTED and not spoilt:
            names = ("elbo", "objective", "gap", "restored_step")
            self.totals.ended = {name: getattr(result, name) for name in names}
            self._save(done, is_end=True)
        self._warn(self._with_evidence(result), exact is not None)
        return result

    def _with_evidence(self, result: FitResult) -> FitResult:
        if result.reason != INTERRUPTED and self.group.strategy is None:
            batches, spent = self.plan.batches, result.seconds + result.compile_seconds
            data = (batches.X, batches.Y) if isinstance(batches, ArrayBatches) else None
            limit = float("inf") if self.limits.seconds is None else self.limits.seconds
            result.evidence = final_evidence(self.model, data, spent, limit - spent)
        return result

    def _closing(self, done: int, reason: str, line: ProgressLine) -> tuple[Report | None, str]:
        """The closing work and why the run ends; a failure leaves the Parameters unchanged."""
        began, finish = time.perf_counter(), self.plan.closing
        if finish is None:
            return None, reason
        try:
            with all_or_nothing(self._turns.variables):
                report = finish(self._clock(done, line))
        except KeyboardInterrupt:
            if self.group.workers > 1:  # the others wait, and notice when the process ends
                raise
            return None, INTERRUPTED
        except NumericalError as error:
            failure = restored(error, done)
            failure.result = self._result(done, "numerical failure")
            raise failure from error
        if report is None:
            return None, reason
        if (last := self._report) is not None:
            report = report._replace(is_long=last.is_long, rise=last.rise)
        self._report = report
        self.totals.clipped += int(np.sum(report.output.clipped))
        self.totals.seconds += time.perf_counter() - began
        self.totals.refreshes += 1
        return report, INTERRUPTED if report.reason == INTERRUPTED else reason

    def _warn(self, result: FitResult, is_exact: bool) -> None:
        batch = self._turns.last_batch
        if batch is None or not result.steps:
            return
        bounds, num_data = [*self._before, *result.history["elbo"]], self.plan.batches.num_data
        warn_of_quadrature(self.model, result.elbo, batch)
        # a few steps have learned no noise
        if isinstance(self.model, GPModel) and (result.reason not in _LIMITS or result.steps > 20):
            warn_of_no_signal(self.model, *batch)
        rising = self._report is None or not self._report.is_long
        warn_of_fall(bounds, result.elbo, num_data, is_exact, rising, self.plan.sampled_rows)
        # patience and tolerances judge for themselves, an interrupt is no choice
        if rising and result.reason in _LIMITS:
            warn_of_rise(bounds, num_data, _REMEDY)
        if self._report is not None and result.reason in _UNFINISHED:
            warn_of_last_rise(self._report.rise, num_data, _REMEDY)

    def _result(self, done: int, reason: str) -> FitResult:
        totals = self.totals
        skip = 0 if self._restored_step is None else done - self._restored_step
        return FitResult(
            elbo=self.history.mean("elbo", RECENT, skip),
            objective=self.plan.objective,
            steps=done,
            seconds=totals.seconds,
            history=self.history.arrays(),
            converged=self._scores.out_of_patience(totals) or totals.converged,
            reason=reason,
            compile_seconds=self._compile_seconds,
            shortened_steps=totals.shortened,
            clipped_sites=totals.clipped,
            refreshes=totals.refreshes,
            gap=None if self._report is None else self._report.gap,
            restored_step=self._restored_step,
            start=self._begin.start,
        )
