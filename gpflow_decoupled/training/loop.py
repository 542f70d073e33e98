"""The loop of a run: step sizes, refreshes, evaluations, checkpoints, and when to stop."""

from __future__ import annotations

__all__ = ["Loop"]

import time
import warnings
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import NoReturn

import numpy as np
from gpflow.models import GPModel

from ..diagnostics import (
    explain,
    restored,
    unusable_observation,
    warn_of_fall,
    warn_of_quadrature,
)
from ..errors import CheckpointError, DataError, NumericalError, WorkerError
from ..models import FactorGraph
from .advance import Advance, Taken
from .batches import Batch, Batches
from .beginning import Beginning
from .checkpoints import Checkpoints, RunCheckpoint
from .evaluation import Evaluation
from .plan import Plan
from .progress import ProgressLine
from .result import RECENT, FitResult, History, Totals
from .states import Best, Snapshot, exact_bound, go_back, is_sound, snapshot
from .steps import Step
from .together import metrics_of_all, refuse_other_run, run_settings

INTERRUPTED = "interrupted"
SPOILT = "; the last step was undone, because the bound after it is not finite"


class Loop:
    """Runs a step until a limit is reached, and undoes a step that fails.

    :param model: the model that is trained, as callbacks and evaluations see it.
    :param step: one training step of it.
    :param batches: where the data of each step come from.
    :param plan: limits, step sizes, and what happens between steps.
    :param begin: what is done before the first step, once nothing can be refused any more; its
    seconds count.
    """

    def __init__(
        self,
        model: GPModel | FactorGraph,
        step: Step,
        batches: Batches,
        plan: Plan,
        begin: Beginning,
    ) -> None:
        self.model, self.step, self.batches, self.plan = model, step, batches, plan
        self._begin, self.group = begin, plan.group
        self.history, self.totals = History(), Totals()
        self._checkpoint = (
            None if plan.checkpoints is None else self._run_checkpoint(plan.checkpoints)
        )
        self._advance = Advance(step, batches, plan, self._fail)
        self._best, self._compile_seconds = Best(), 0.0
        self._restored_step: int | None = None

    def _run_checkpoint(self, checkpoints: Checkpoints) -> RunCheckpoint:
        """The state of this run in its folder."""
        objects = {"model": self.model, **self.step.checkpointable}
        return RunCheckpoint(
            checkpoints.folder, objects, self.batches.checkpointable, self._settings(), self.group
        )

    def _settings(self) -> dict[str, object]:
        """What must be the same for the run to go on, and on all workers."""
        plan = self.plan
        parts = {
            "seed": plan.seed,
            **self.batches.settings,
            **self.step.settings,
            **asdict(plan.rates),
        }
        return run_settings(self.model, parts, plan.refresh_every, self.group)

    def run(self) -> FitResult:
        """Train until a limit is reached, with the folder of the checkpoints locked; the data are
        closed at the end.
        """
        refuse_other_run(self.group, lambda: {**self._settings(), **asdict(self.plan.limits)})
        with (
            closing(self.batches),
            nullcontext() if self._checkpoint is None else self._checkpoint.locked(),
        ):
            return self._run()

    def _run(self) -> FitResult:
        done, limits = self._resume(), self.plan.limits
        self.totals.seconds += self._begin(done)
        with closing(
            ProgressLine(self.plan.progress and self.group.is_first, limits.steps, limits.seconds)
        ) as line:
            self.step.show = line.show
            try:
                self._compile(done)
                while (reason := self._reason_to_stop(done)) is None:
                    began, before = time.perf_counter(), self.totals.seconds
                    taken = self._advance(done, before)
                    done += len(taken.elbo)
                    seconds = before + (time.perf_counter() - began)
                    self.totals.seconds = (
                        seconds if limits.seconds is None else self.group.first(seconds)
                    )
                    self._record(done, taken, before)
                    self._after_step(done, line)
            except KeyboardInterrupt:
                if (
                    self.group.workers > 1
                ):  # the others would wait for this one: they notice when the process ends
                    raise
                reason = INTERRUPTED
            except (DataError, WorkerError) as error:
                kind = "unusable data" if isinstance(error, DataError) else "a worker failed"
                error.result = self._result(done, kind)
                raise
            return self._close(done, reason, line)

    def _resume(self) -> int:
        """Steps that an earlier run has done; a folder without a state gets one now, so that what
        fails does so early.
        """
        if self._checkpoint is None:
            return 0
        before = snapshot((*self.step.variables, *self.model.variables))
        state = None
        try:
            state = self._checkpoint.restore(self.history, self._best)
        finally:
            if state is None:  # a damaged state may have been read in part
                go_back(before)
        if state is None:
            self._save(0)
            return 0
        done, self.totals = state
        if self.totals.nothing_is_left(asdict(self.plan.limits)):
            self.step.finished, self.step.converged = self.totals.finished, self.totals.converged
        return done

    def _compile(self, done: int) -> None:
        """Trace the step for its first batch, and note how long that took."""
        began = time.perf_counter()
        if self._reason_to_stop(done) is None:
            self._advance.trace(done)
        self._compile_seconds = time.perf_counter() - began

    def _reason_to_stop(self, done: int) -> str | None:
        limits = self.plan.limits
        if self.step.finished:
            return self.step.finished
        if self._out_of_patience and self.plan.evaluation is not None:
            return f"no improvement in {self.plan.evaluation.patience} evaluations"
        if limits.share(done, self.totals.seconds) < 1.0:
            return None
        return "steps done" if limits.steps is not None and done >= limits.steps else "time is up"

    @property
    def _out_of_patience(self) -> bool:
        patience = None if self.plan.evaluation is None else self.plan.evaluation.patience
        return patience is not None and self.totals.waited >= patience

    def _finish(self, done: int) -> bool:
        """What the step leaves for the end, and whether that was anything; a failure leaves the
        Parameters as they were.
        """
        now, began = snapshot(self.step.variables), time.perf_counter()
        try:
            if not self.step.finish():
                return False
        except NumericalError as error:
            go_back(now)
            failure = restored(error, done)
            failure.result = self._result(done, "numerical failure")
            raise failure from error
        except BaseException:
            go_back(now)
            raise
        self.totals.seconds += time.perf_counter() - began
        self.totals.refreshes += 1
        return True

    def _record(self, done: int, taken: Taken, before: float) -> None:
        """The steps of one call, which took equal shares of its time."""
        count = len(taken.elbo)
        seconds = np.linspace(before, self.totals.seconds, count + 1)[1:]
        for k, elbo in enumerate(taken.elbo):
            self.history.append(step=done - count + k + 1, seconds=seconds[k], elbo=elbo)
        self.totals.shortened += int(np.sum(taken.shortened))
        self.totals.clipped += int(np.sum(taken.clipped))
        self.totals.refreshes += int(taken.refreshed)

    def _after_step(self, done: int, line: ProgressLine) -> None:
        """Evaluate, report, save: each where it is due."""
        plan, metrics = self.plan, dict[str, float]()
        if plan.evaluation is not None and done % plan.evaluation.every == 0:
            metrics = self._evaluate(done)
            self._count_patience(done, metrics, plan.evaluation)
        if done % plan.callbacks.every == 0 or metrics or self.step.is_long:
            recent = self.history.mean("elbo", 1 if self.step.is_long else plan.callbacks.every)
            line.update(done, self.totals.seconds, recent, **metrics)
            self.group.together(
                lambda: plan.callbacks(done, {"elbo": recent, **metrics}, self.model)
            )
        if (
            plan.checkpoints is not None
            and done % plan.checkpoints.every == 0
            and self._reason_to_stop(done) is None
        ):
            if (batch := self._advance.last_batch) is not None and not self._is_sound(done):
                self._fail(batch, snapshot(self.step.variables), done)
            self._save(done)

    def _save(self, done: int) -> None:
        if self._checkpoint is None:
            return
        self.totals.finished = "" if self.step.finished == INTERRUPTED else self.step.finished
        self.totals.converged, self.totals.limits = self.step.converged, asdict(self.plan.limits)
        try:
            self._checkpoint.save(done, self.history, self.totals, self._best)
        except CheckpointError as error:
            error.result = self._result(done, "no checkpoint could be written")
            raise

    def _evaluate(self, done: int) -> dict[str, float]:
        if self.plan.evaluation is None or self.plan.evaluation.data is None:
            return {}
        metrics = metrics_of_all(self.group, self.model, self.plan.evaluation.data)
        self.history.append(evaluation_step=done, evaluation_seconds=self.totals.seconds, **metrics)
        return metrics

    def _count_patience(self, done: int, metrics: dict[str, float], evaluation: Evaluation) -> None:
        score = self.group.first(
            metrics.get("log_density", self.history.mean("elbo", evaluation.every))
        )
        if not np.isfinite(score):
            warnings.warn(
                f"The score after step {done} is {score}, and is not taken for a lack of"
                " improvement.",
                stacklevel=6,
            )
            return
        self.totals.waited += 1
        if score > self.totals.best:
            self.totals.best, self.totals.best_step, self.totals.waited = score, done, 0
            if evaluation.patience is not None and evaluation.restore_best:
                self._best.take(self.step.variables)

    def _fail(
        self, batch: Batch, now: Snapshot, done: int, cause: NumericalError | None = None
    ) -> NoReturn:
        """Find the cause at the Parameters that failed, then go back to the last ones at which the
        bound was sound.
        """
        go_back(now)
        cause = unusable_observation(self.model, batch) if cause is None and done == 0 else cause
        likelihood = getattr(self.model, "likelihood", None)
        error = (
            explain(self.step.matrices(), batch, done, likelihood)
            if cause is None
            else restored(cause, done)
        )
        go_back(now)
        self._advance.undo()
        error.result = self._result(done, "numerical failure")
        raise error from cause

    def _close(self, done: int, reason: str, line: ProgressLine) -> FitResult:
        """Go back to what is sound and best, finish, and take the last evaluation, checkpoint and
        bound.
        """
        exact, stopped = exact_bound(self.step, self.batches.whole), self._out_of_patience
        spoilt = not self._is_sound(done, exact)
        if spoilt and (sound := self._advance.undo()) is not None:
            self._restored_step, reason = sound, reason + SPOILT
            warnings.warn(
                f"Step {done} left a bound that is not finite, and was undone.", stacklevel=5
            )
        elif stopped:
            self._save(done)
        if stopped and self._best.put_back(self.step.variables):
            self._restored_step = self.totals.best_step
        try:
            finished = self._finish(done) if reason != INTERRUPTED else False
        except KeyboardInterrupt:
            if self.group.workers > 1:
                raise
            finished, reason = False, INTERRUPTED
        line.close()
        reason = INTERRUPTED if self.step.finished == INTERRUPTED else reason
        evaluated = self.history.tail("evaluation_step", 1)
        if not evaluated or evaluated[0] != done:
            self._evaluate(done if self._restored_step is None else self._restored_step)
        if not spoilt:
            self._save(done)
        result = self._result(done, reason)
        if finished or self._restored_step is not None:
            exact = exact_bound(self.step, self.batches.whole)
        result.elbo = result.elbo if exact is None or not done else exact
        batch = self._advance.last_batch
        if done and batch is not None:
            bounds, num_data = [*self.step.before, *result.history["elbo"]], self.batches.num_data
            warn_of_quadrature(self.model, result.elbo, batch)
            rising, sampled = not self.step.is_long, self.step.sampled_rows
            warn_of_fall(bounds, result.elbo, num_data, exact is not None, rising, sampled)
        return result

    def _is_sound(self, done: int, bound: float | None = None) -> bool:
        """Whether the Parameters after a step of this run are finite, and the bound there, which is
        computed if not given.
        """
        if (batch := self._advance.last_batch) is None:
            return True
        own = {variable.ref() for variable in self.model.variables}
        moved = [variable for variable in self.step.variables if variable.ref() in own]
        found = is_sound(
            moved,
            lambda: self.step.probe(*batch, self._advance.seed(done)) if bound is None else bound,
        )
        return self.group.all(found)

    def _result(self, done: int, reason: str) -> FitResult:
        totals = self.totals
        return FitResult(
            elbo=self.history.mean(
                "elbo", RECENT, 0 if self._restored_step is None else done - self._restored_step
            ),
            steps=done,
            seconds=totals.seconds,
            history=self.history.arrays(),
            converged=self._out_of_patience or self.step.converged,
            reason=reason,
            compile_seconds=self._compile_seconds,
            shortened_steps=totals.shortened,
            clipped_sites=totals.clipped,
            refreshes=totals.refreshes,
            gap=self.step.gap,
            restored_step=self._restored_step,
            start=self._begin.start,
        )
