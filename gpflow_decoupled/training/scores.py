"""Held-out scores, and patience."""

from __future__ import annotations

__all__ = ["Scores"]

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..models import FactorGraph
from ..user_warnings import warn_user
from .options import Options
from .result import History, Totals
from .snapshots import Best
from .workers import metrics_of_all


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
