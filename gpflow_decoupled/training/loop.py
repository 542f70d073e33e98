"""The loop of a run: step sizes, refreshes, evaluations, checkpoints, and when to stop."""

from __future__ import annotations

__all__ = ["Limits", "Loop", "Plan"]

import time
from dataclasses import asdict, dataclass
from typing import NoReturn

import tensorflow as tf
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from ..errors import DataError, NumericalError
from ..models import FactorGraph
from ..optimizers.expectation_check import warn_of_quadrature
from ..optimizers.unusable_observation import unusable_observation
from .batches import Batch, Batches
from .checkpoints import Checkpoints, RunCheckpoint
from .evaluation import Evaluation, held_out_metrics
from .failure import explain, restored
from .progress import Callbacks, ProgressLine
from .result import RECENT, FitResult, History, Totals
from .schedules import Rates
from .step import Step, StepOutput

Snapshot = list[tuple[tf.Variable, tf.Tensor]]
"""Variables with the values that they had."""


@dataclass(frozen=True)
class Limits:
    """When a run ends; a limit that is None does not end it."""

    steps: int | None
    seconds: float | None

    def share(self, step: int, seconds: float) -> float:
        """How much of the run is done, in [0, 1]."""
        shares = [step / self.steps] if self.steps else []
        shares += [seconds / self.seconds] if self.seconds else []
        return max(shares, default=1.0)


@dataclass(frozen=True)
class Plan:
    """What a run does beside its steps."""

    limits: Limits
    rates: Rates
    refresh_every: int
    evaluation: Evaluation | None
    checkpoints: Checkpoints | None
    callbacks: Callbacks
    seed: int
    progress: bool


class Loop:
    """Runs a step until a limit is reached, and undoes a step that fails.

    :param model: the model that is trained, as callbacks and evaluations see it.
    :param step: one training step of it.
    :param batches: where the data of each step come from.
    :param plan: limits, step sizes, and what happens between steps.
    """

    def __init__(self, model: GPModel | FactorGraph, step: Step, batches: Batches, plan: Plan) -> None:
        self.model, self.step, self.batches, self.plan = model, step, batches, plan
        self.history, self.totals = History(), Totals()
        self._checkpoint = None if plan.checkpoints is None else self._run_checkpoint(plan.checkpoints)
        self._batch: Batch | None = None
        self._seen: Batch | None = None
        self._good: Snapshot | None = None
        self._compile_seconds = 0.0

    def _run_checkpoint(self, checkpoints: Checkpoints) -> RunCheckpoint:
        """The state of this run in its folder: what is saved, and what must be the same for it to go on."""
        step, batches, plan = self.step, self.batches, self.plan
        settings = {"seed": plan.seed, **batches.settings, **step.settings, **asdict(plan.rates)}
        settings["refresh_every"] = plan.refresh_every
        for name, parameter in parameter_dict(self.model).items():
            flag = "trainable" if parameter.trainable else "fixed"
            settings[f"parameter {name}"] = f"{list(parameter.numpy().shape)} {flag}"
        objects = {"model": self.model, **step.checkpointable, **batches.checkpointable}
        return RunCheckpoint(checkpoints.folder, objects, settings)

    def run(self) -> FitResult:
        """Train until a limit is reached."""
        done, limits = self._resume(), self.plan.limits
        self._compile(done)
        line = ProgressLine(self.plan.progress, limits.steps, limits.seconds)
        try:
            while (reason := self._reason_to_stop(done)) is None:
                began = time.perf_counter()
                output = self._advance(done)
                done += 1
                self.totals.seconds += time.perf_counter() - began
                self._record(done, output)
                self._after_step(done, line)
            self._finish(done)
        except KeyboardInterrupt:
            reason = "interrupted"
        except DataError as error:
            error.result = self._result(done, "unusable data")
            raise
        finally:
            line.close()
        return self._close(done, reason)

    def _resume(self) -> int:
        """Steps that an earlier run has done; a folder without a state gets one now, so that what fails does so early."""
        if self._checkpoint is None:
            return 0
        before = self._snapshot()
        try:
            state = self._checkpoint.restore(self.history)
        except DataError:
            _write(before)
            raise
        if state is None:
            self._checkpoint.save(0, self.history, asdict(self.totals))
            return 0
        self.totals = Totals.of(state[1])
        return state[0]

    def _compile(self, done: int) -> None:
        """Trace the step for its first batch, and note how long that took."""
        began = time.perf_counter()
        if self._reason_to_stop(done) is None:
            self._batch = self.batches(done)
            self.step.trace(*self._batch, self._seed(done))
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

    def _advance(self, done: int) -> StepOutput:
        """One step; what is not a whole and sound step leaves the Parameters as they were before."""
        batch, self._batch = self.batches(done) if self._batch is None else self._batch, None
        now = self._snapshot()
        try:
            self.step.set_step_sizes(self.plan.rates.at(done, self.plan.limits.share(done, self.totals.seconds)))
            if done % self.plan.refresh_every == 0:
                self.totals.refreshes += int(self.step.refresh())
            output = self.step.run(*batch, self._seed(done))
            ok = bool(output.ok)
        except NumericalError as error:
            self._fail(batch, now, done, error)
        except BaseException:  # an interrupt, or no memory
            _write(now)
            raise
        if not ok:
            self._fail(batch, now, done)
        self._good, self._seen = now, batch
        return output

    def _finish(self, done: int) -> None:
        """What the step leaves for the end; a failure leaves the Parameters as the last step made them."""
        now, began = self._snapshot(), time.perf_counter()
        try:
            if self.step.finish():
                self.totals.seconds += time.perf_counter() - began
                self.totals.refreshes += 1
        except NumericalError as error:
            _write(now)
            failure = restored(error, done)
            failure.result = self._result(done, "numerical failure")
            raise failure from error
        except BaseException:
            _write(now)
            raise

    def _snapshot(self) -> Snapshot:
        return [(variable, variable.read_value()) for variable in self.step.variables]

    def _seed(self, step: int) -> tf.Tensor:
        return tf.constant([self.plan.seed, step], tf.int32)

    def _record(self, done: int, output: StepOutput) -> None:
        self.history.append(step=done, seconds=self.totals.seconds, elbo=output.elbo)
        self.totals.shortened += int(output.shortened)
        self.totals.clipped += int(output.clipped)

    def _after_step(self, done: int, line: ProgressLine) -> None:
        """Evaluate, report, save: each where it is due."""
        plan, metrics = self.plan, dict[str, float]()
        if plan.evaluation is not None and done % plan.evaluation.every == 0:
            metrics = self._evaluate(done)
            self._count_patience(metrics, plan.evaluation)
        if done % plan.callbacks.every == 0 or metrics:
            recent = self.history.mean("elbo", plan.callbacks.every)
            line.update(done, self.totals.seconds, recent, **metrics)
            plan.callbacks(done, {"elbo": recent, **metrics}, self.model)
        if plan.checkpoints is not None and done % plan.checkpoints.every == 0:
            self._save(done)

    def _save(self, done: int) -> None:
        if self._checkpoint is not None:
            self._checkpoint.save(done, self.history, asdict(self.totals))

    def _evaluate(self, done: int) -> dict[str, float]:
        if self.plan.evaluation is None or self.plan.evaluation.data is None:
            return {}
        metrics = held_out_metrics(self.model, self.plan.evaluation.data)
        self.history.append(evaluation_step=done, evaluation_seconds=self.totals.seconds, **metrics)
        return metrics

    def _count_patience(self, metrics: dict[str, float], evaluation: Evaluation) -> None:
        score = metrics.get("log_density", self.history.mean("elbo", evaluation.every))
        better = score > self.totals.best
        self.totals.best = max(score, self.totals.best)
        self.totals.waited = 0 if better else self.totals.waited + 1

    def _fail(self, batch: Batch, now: Snapshot, done: int, cause: NumericalError | None = None) -> NoReturn:
        """Find the cause at the Parameters that failed, then go back to the last ones at which the bound was sound."""
        _write(now)
        cause = unusable_observation(self.model, batch) if cause is None and done == 0 else cause
        error = explain(self.step.matrices(), batch, done) if cause is None else restored(cause, done)
        _write(now if self._good is None else self._good)
        error.result = self._result(done, "numerical failure")
        raise error from cause

    def _close(self, done: int, reason: str) -> FitResult:
        """The last evaluation, checkpoint and bound."""
        evaluated = self.history.tail("evaluation_step", 1)
        if not evaluated or evaluated[0] != done:
            self._evaluate(done)
        self._save(done)
        result = self._result(done, reason)
        exact = self.step.bound(*self.batches.whole) if done and self.batches.whole is not None else None
        result.elbo = result.elbo if exact is None else float(exact)
        if done and self._seen is not None:
            warn_of_quadrature(self.model, result.elbo, self._seen, stacklevel=5)
        return result

    def _result(self, done: int, reason: str) -> FitResult:
        totals = self.totals
        return FitResult(
            elbo=self.history.mean("elbo", RECENT),
            steps=done,
            seconds=totals.seconds,
            history=self.history.arrays(),
            converged=self._out_of_patience or self.step.converged,
            reason=reason,
            compile_seconds=self._compile_seconds,
            shortened_steps=totals.shortened,
            clipped_sites=totals.clipped,
            refreshes=totals.refreshes,
        )


def _write(snapshot: Snapshot) -> None:
    for variable, value in snapshot:
        variable.assign(value)
