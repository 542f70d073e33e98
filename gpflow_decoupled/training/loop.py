"""The loop of a run: rates, snapshots, refreshes, evaluations, checkpoints, and when to stop."""

from __future__ import annotations

__all__ = ["Limits", "Loop", "Rates"]

import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from ..bases import InducingBasis
from ..errors import DataError, NumericalError
from ..models import BasisGP
from .checkpoints import RunCheckpoint
from .evaluation import held_out_metrics
from .failure import explain, restored
from .progress import ProgressLine, call_back
from .result import FitResult, History
from .routes.inducing import StepOutput, TrainingStep
from .schedules import annealed, ramped


@dataclass(frozen=True)
class Limits:
    """When a run ends."""

    steps: int | None
    seconds: float | None
    patience: int | None

    def share(self, step: int, seconds: float) -> float:
        """How much of the run is done, in [0, 1]."""
        shares = [step / self.steps] if self.steps else []
        shares += [seconds / self.seconds] if self.seconds else []
        return max(shares, default=1.0)


@dataclass(frozen=True)
class Rates:
    """Step sizes before ramp and annealing, by the names that `fit` gives them."""

    natural_gradient: float | None
    learning_rate: float
    mean_learning_rate: float
    ramp_steps: int
    anneal: float


class Loop:
    """Runs a compiled step until a limit; `model` is the user's, `view` the `BasisGP` that shares its Parameters."""

    def __init__(
        self,
        model: Any,
        view: BasisGP,
        step: TrainingStep,
        batches: Any,
        rates: Rates,
        limits: Limits,
        seed: int,
    ) -> None:
        self.model, self.view, self.step, self.batches = model, view, step, batches
        self.rates, self.limits, self.seed = rates, limits, seed
        self.refresh_every, self.report_every = 100, 20
        self.callbacks: tuple = ()
        self.evaluation: tuple | None = None
        self.evaluate_every = 500
        self.history = History()
        self.totals = {
            "seconds": 0.0,
            "shortened": 0,
            "clipped": 0,
            "refreshes": 0,
            "best": -np.inf,
            "waited": 0,
        }
        self._checkpoint: RunCheckpoint | None = None
        self._checkpoint_every = 0
        self._batch: tuple | None = None
        self._good: list[tf.Tensor] | None = None

    def keep_checkpoints(self, folder: Any, every: int) -> None:
        """Save to `folder` every so many steps, and go on from what is there."""
        step, view = self.step, self.view
        objects = {"model": self.model, "optimizer": step.optimizer, **self.batches.checkpointable}
        if step.mean_optimizer is not None:
            objects["mean_optimizer"] = step.mean_optimizer
        if step.natural is not None:
            objects["natural"] = step.natural
        settings = {
            "seed": self.seed,
            **self.batches.settings,
            **{part: type(getattr(view, part)).__name__ for part in ("basis", "kernel", "likelihood", "mean_function")},
            **asdict(self.rates),
            "mean_solver": None if step.natural is None else step.natural.mean,
            "negative_precision": None if step.natural is None else step.natural.negative_precision,
            "optimizer": f"{type(step.optimizer).__module__.split('.')[0]}.{type(step.optimizer).__name__}",
            "refresh_every": self.refresh_every,
            "holds_sites": step.holds_sites,
            "num_samples": getattr(getattr(view, "expectations", None), "num_samples", None),
        }
        for name, parameter in parameter_dict(self.model).items():
            shape = list(parameter.numpy().shape)
            settings[f"parameter {name}"] = f"{shape} {'trainable' if parameter.trainable else 'fixed'}"
        self._checkpoint, self._checkpoint_every = RunCheckpoint(folder, objects, settings), every

    def run(self, show_progress: bool) -> FitResult:
        """Train until a limit is reached."""
        done = self._resume()
        compile_seconds = self._compile(done)
        line = ProgressLine(show_progress, self.limits.steps, self.limits.seconds)
        try:
            while (reason := self._reason_to_stop(done)) is None:
                began = time.perf_counter()
                output = self._advance(done)
                done += 1
                self.totals["seconds"] += time.perf_counter() - began
                self._record(done, output)
                self._after_step(done, line)
        except KeyboardInterrupt:
            reason = "interrupted"
        except DataError as error:
            error.result = self._result(done, "unusable data", compile_seconds)
            raise
        finally:
            line.close()
        return self._finish(done, reason, compile_seconds)

    def _resume(self) -> int:
        """Steps that an earlier run has done; a folder without a state gets one now, so that what fails does so early."""
        if self._checkpoint is None:
            return 0
        before = self._snapshot()
        try:
            state = self._checkpoint.restore(self.history)
        except DataError:
            self._write(before)
            raise
        if state is None:
            self._checkpoint.save(0, self.history, self.totals)
            return 0
        self.totals.update(state[1])
        return state[0]

    def _compile(self, done: int) -> float:
        """Trace the step for its first batch, and say how long it took."""
        began = time.perf_counter()
        if self._reason_to_stop(done) is None:
            self._batch = self.batches(done)
            if hasattr(self.step.run, "get_concrete_function"):
                self.step.run.get_concrete_function(*self._batch, self._seed(done))
        return time.perf_counter() - began

    def _reason_to_stop(self, done: int) -> str | None:
        limits = self.limits
        if self.step.stop_reason:
            return self.step.stop_reason
        if limits.patience and self.totals["waited"] >= limits.patience:
            return f"no improvement in {limits.patience} evaluations"
        if limits.share(done, self.totals["seconds"]) < 1.0:
            return None
        return "steps done" if limits.steps is not None and done >= limits.steps else "time is up"

    def _advance(self, done: int) -> StepOutput:
        """One step; what is not a whole and sound step leaves the Parameters as they were before."""
        batch, self._batch = self.batches(done) if self._batch is None else self._batch, None
        now = self._snapshot()
        try:
            self._set_rates(done, self.limits.share(done, self.totals["seconds"]))
            if done % self.refresh_every == 0:
                self._refresh()
            output = self.step.run(*batch, self._seed(done))
            ok = bool(output.ok)
        except NumericalError as error:
            self._fail(batch, now, done, error)
        except BaseException:  # an interrupt, or no memory
            self._write(now)
            raise
        if not ok:
            self._fail(batch, now, done)
        self._good = now
        return output

    def _snapshot(self) -> list[tf.Tensor]:
        return [variable.read_value() for variable in self.step.variables]

    def _seed(self, step: int) -> tf.Tensor:
        return tf.constant([self.seed, step], tf.int32)

    def _set_rates(self, step: int, share: float) -> None:
        factor = annealed(share, self.rates.anneal)
        if self.step.natural is not None and self.rates.natural_gradient is not None:
            self.step.natural.gamma.assign(factor * ramped(step, self.rates.natural_gradient, self.rates.ramp_steps))
            self.step.natural.mean_step.assign(factor * self.rates.mean_learning_rate)
        self.step.optimizer.learning_rate.assign(factor * self.rates.learning_rate)
        if self.step.mean_optimizer is not None:
            self.step.mean_optimizer.learning_rate.assign(factor * self.rates.mean_learning_rate)

    def _refresh(self) -> None:
        basis = self.view.basis
        if not isinstance(basis, InducingBasis) or basis.kernel_mean is None:
            return
        try:
            basis.refresh(self.view.kernel)
            self.totals["refreshes"] += 1
        except NumericalError as error:  # only a preconditioner: the old one serves on
            warnings.warn(f"The scaling of the mean coefficients was not refreshed. {error}", stacklevel=2)

    def _record(self, done: int, output: StepOutput) -> None:
        self.history.append(step=done, seconds=self.totals["seconds"], elbo=output.elbo)
        self.totals["shortened"] += int(output.shortened)
        self.totals["clipped"] += int(output.clipped)

    def _after_step(self, done: int, line: ProgressLine) -> None:
        """Report, evaluate, save."""
        metrics: dict[str, float] = {}
        if (self.evaluation is not None or self.limits.patience) and done % self.evaluate_every == 0:
            metrics = self._evaluate(done)
            self._count_patience(metrics)
        if done % self.report_every == 0 or metrics:
            recent = float(np.mean(self.history.tail("elbo", self.report_every)))
            line.update(done, self.totals["seconds"], recent, **metrics)
            call_back(self.callbacks, done, {"elbo": recent, **metrics}, self.model)
        if self._checkpoint is not None and done % self._checkpoint_every == 0:
            self._checkpoint.save(done, self.history, self.totals)

    def _evaluate(self, done: int) -> dict[str, float]:
        if self.evaluation is None:
            return {}
        metrics = held_out_metrics(self.model, self.evaluation)
        self.history.append(evaluation_step=done, evaluation_seconds=self.totals["seconds"], **metrics)
        return metrics

    def _count_patience(self, metrics: dict[str, float]) -> None:
        score = metrics.get("log_density", float(np.mean(self.history.tail("elbo", self.evaluate_every))))
        better = score > self.totals["best"]
        self.totals["best"] = max(score, self.totals["best"])
        self.totals["waited"] = 0 if better else self.totals["waited"] + 1

    def _fail(self, batch: tuple, now: list[tf.Tensor], done: int, cause: NumericalError | None = None) -> NoReturn:
        """Say what failed where it failed, then go back to the last parameters at which the bound was sound."""
        self._write(now)
        error = explain(self.view, batch, done) if cause is None else restored(cause, done)
        self._write(now if self._good is None else self._good)
        error.result = self._result(done, "numerical failure", 0.0)
        raise error from cause

    def _write(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.step.variables, values):
            variable.assign(value)

    def _finish(self, done: int, reason: str, compile_seconds: float) -> FitResult:
        evaluated = self.history.tail("evaluation_step", 1)
        if self.evaluation is not None and (len(evaluated) == 0 or evaluated[0] != done):
            self._evaluate(done)
        if self._checkpoint is not None:
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
            shortened_steps=int(totals["shortened"]),
            clipped_sites=int(totals["clipped"]),
            refreshes=int(totals["refreshes"]),
        )
