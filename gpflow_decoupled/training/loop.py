"""The loop of a run: rates, snapshots, refreshes, evaluations, checkpoints, and when to stop."""
from __future__ import annotations

__all__ = ["Limits", "Loop", "Rates"]

import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from ..errors import NumericalError
from ..models import BasisGP
from .checkpoints import RunCheckpoint
from .evaluation import held_out_metrics
from .failure import explain
from .progress import ProgressLine, call_back
from .result import FitResult, History
from .schedules import annealed, ramped
from .step import StepOutput, TrainingStep


@dataclass(frozen=True)
class Limits:
    """When a run ends."""

    steps: Optional[int]
    seconds: Optional[float]
    patience: Optional[int]

    def share(self, step: int, seconds: float) -> float:
        """How much of the run is done, in [0, 1]."""
        shares = [step / self.steps] if self.steps else []
        shares += [seconds / self.seconds] if self.seconds else []
        return max(shares, default=1.0)


@dataclass(frozen=True)
class Rates:
    """Step sizes before ramp and annealing."""

    natural: Optional[float]
    other: float
    mean: float
    ramp_steps: int
    anneal: float


class Loop:
    """Runs a compiled step until a limit; `model` is the user's, `view` the `BasisGP` that shares its Parameters."""

    def __init__(
        self, model: Any, view: BasisGP, step: TrainingStep, batches: Any, rates: Rates, limits: Limits, seed: int
    ) -> None:
        self.model, self.view, self.step, self.batches = model, view, step, batches
        self.rates, self.limits, self.seed = rates, limits, seed
        self.refresh_every, self.report_every, self.callbacks = 100, 20, ()
        self.evaluation: Optional[tuple] = None
        self.evaluate_every = 500
        self.history = History()
        self.totals = {"seconds": 0.0, "shortened": 0, "clipped": 0, "refreshes": 0, "best": -np.inf, "waited": 0}
        self._checkpoint: Optional[RunCheckpoint] = None
        self._checkpoint_every = 0

    def keep_checkpoints(self, folder: Any, every: int) -> None:
        """Save to `folder` every so many steps, and go on from what is there."""
        objects = {"model": self.model, "optimizer": self.step.optimizer, **self.batches.checkpointable}
        if self.step.mean_optimizer is not None:
            objects["mean_optimizer"] = self.step.mean_optimizer
        settings = {
            "seed": self.seed,
            "num_data": self.batches.num_data,
            "batch_size": getattr(self.batches, "batch_size", None),
            "parameters": [list(v.shape) for v in self.step.variables],
            "rates": list(self.rates.__dict__.values()),
            "refresh_every": self.refresh_every,
        }
        self._checkpoint, self._checkpoint_every = RunCheckpoint(folder, objects, settings), every

    def run(self, show_progress: bool) -> FitResult:
        """Train until a limit is reached."""
        done = self._resume()
        compiling = time.perf_counter()
        first = self.batches(done) if self.limits.share(done, self.totals["seconds"]) < 1.0 else None
        if first is not None and hasattr(self.step.run, "get_concrete_function"):
            self.step.run.get_concrete_function(*first, self._seed(done))
        compile_seconds = time.perf_counter() - compiling
        line = ProgressLine(show_progress, self.limits.steps, self.limits.seconds, done)
        good: Optional[list[tf.Tensor]] = None
        reason = "nothing to do"
        try:
            batch = first
            while True:
                share = self.limits.share(done, self.totals["seconds"])
                if share >= 1.0:
                    by_steps = self.limits.steps is not None and done >= self.limits.steps
                    reason = "steps done" if by_steps else "time is up"
                    break
                began = time.perf_counter()
                self._set_rates(done, share)
                if done % self.refresh_every == 0:
                    self._refresh()
                now = [v.read_value() for v in self.step.variables]
                batch = self.batches(done) if batch is None else batch
                output = self.step.run(*batch, self._seed(done))
                if not output.ok:
                    self._fail(batch, now, good if good is not None else now, done)
                good, batch, done = now, None, done + 1
                self.totals["seconds"] += time.perf_counter() - began
                self._record(done, output)
                if self._after_step(done, line):
                    reason = f"no improvement in {self.limits.patience} evaluations"
                    break
        except KeyboardInterrupt:
            reason = "interrupted"
        finally:
            line.close()
        return self._finish(done, reason, compile_seconds)

    def _resume(self) -> int:
        state = None if self._checkpoint is None else self._checkpoint.restore(self.history)
        if state is None:
            return 0
        self.totals.update(state[1])
        return state[0]

    def _seed(self, step: int) -> tf.Tensor:
        return tf.constant([self.seed, step], tf.int32)

    def _set_rates(self, step: int, share: float) -> None:
        factor = annealed(share, self.rates.anneal)
        if self.step.natural is not None:
            self.step.natural.gamma.assign(factor * ramped(step, self.rates.natural, self.rates.ramp_steps))
        for rule, rate in ((self.step.optimizer, self.rates.other), (self.step.mean_optimizer, self.rates.mean)):
            if rule is not None:
                rule.learning_rate.assign(factor * rate)

    def _refresh(self) -> None:
        if self.view.basis.kernel_mean is None:
            return
        try:
            self.view.basis.refresh(self.view.kernel)
            self.totals["refreshes"] += 1
        except NumericalError as error:  # only a preconditioner: the old one serves on
            warnings.warn(f"The scaling of the mean coefficients was not refreshed. {error}", stacklevel=2)

    def _record(self, done: int, output: StepOutput) -> None:
        self.history.append(step=done, seconds=self.totals["seconds"], elbo=output.elbo)
        self.totals["shortened"] += int(output.shortened)
        self.totals["clipped"] += int(output.clipped)

    def _after_step(self, done: int, line: ProgressLine) -> bool:
        """Report, evaluate, save; whether patience has run out."""
        metrics: dict[str, float] = {}
        stop = False
        if (self.evaluation is not None or self.limits.patience) and done % self.evaluate_every == 0:
            metrics = self._evaluate(done)
            stop = self._out_of_patience(metrics)
        if done % self.report_every == 0 or metrics:
            recent = float(np.mean(self.history.tail("elbo", self.report_every)))
            line.update(done, self.totals["seconds"], recent, **metrics)
            call_back(self.callbacks, done, {"elbo": recent, **metrics}, self.model)
        if self._checkpoint is not None and done % self._checkpoint_every == 0:
            self._checkpoint.save(done, self.history, self.totals)
        return stop

    def _evaluate(self, done: int) -> dict[str, float]:
        if self.evaluation is None:
            return {}
        metrics = held_out_metrics(self.model, self.evaluation)
        self.history.append(evaluation_step=done, evaluation_seconds=self.totals["seconds"], **metrics)
        return metrics

    def _out_of_patience(self, metrics: dict[str, float]) -> bool:
        if not self.limits.patience:
            return False
        score = metrics.get("log_density", float(np.mean(self.history.tail("elbo", self.evaluate_every))))
        better = score > self.totals["best"]
        self.totals["best"] = max(score, self.totals["best"])
        self.totals["waited"] = 0 if better else self.totals["waited"] + 1
        return self.totals["waited"] >= self.limits.patience

    def _fail(self, batch: tuple, now: list[tf.Tensor], good: list[tf.Tensor], done: int) -> None:
        """Say what failed where it failed, then go back to the last parameters at which the bound was sound."""
        self._write(now)
        error = explain(self.view, *batch, done)
        self._write(good)
        error.result = self._result(done, "numerical failure", 0.0)
        raise error

    def _write(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.step.variables, values):
            variable.assign(value)

    def _finish(self, done: int, reason: str, compile_seconds: float) -> FitResult:
        evaluated = self.history.tail("evaluation_step", 1)
        if self.evaluation is not None and (len(evaluated) == 0 or evaluated[0] != done):
            self._evaluate(done)
        if self._checkpoint is not None and reason != "nothing to do":
            self._checkpoint.save(done, self.history, self.totals)
        return self._result(done, reason, compile_seconds)

    def _result(self, done: int, reason: str, compile_seconds: float) -> FitResult:
        totals = self.totals
        return FitResult(
            history=self.history.arrays(),
            steps=done,
            seconds=totals["seconds"],
            compile_seconds=compile_seconds,
            stop_reason=reason,
            shortened_steps=totals["shortened"],
            clipped_sites=totals["clipped"],
            refreshes=totals["refreshes"],
        )
