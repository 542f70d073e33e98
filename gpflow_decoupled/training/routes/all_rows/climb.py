"""Kernel, noise and inducing points by L-BFGS on all rows, at the best q(u) for each of them."""

from __future__ import annotations

__all__ = ["MOST_ENTRIES", "CollapsedClimb", "all_points"]

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ....compilation import Compiled
from ....lbfgs import LBFGSRun, settled
from ....models import BasisGP
from ....optimizers import optimal_parameters
from ....optimizers.ascent import CONVERGED
from ....optimizers.data_mean.hyperparameters import climb
from ....optimizers.gaussian_optimum import regression
from ...batches import Batch

MOST_ENTRIES = 3e7
"""N M of the largest matrices [M, N], of which an evaluation and its gradient keep about seven at
once: 1.7 GB.
"""
_TIMED_ROWS = 4096
"""Rows whose evaluation is timed; for fewer, what does not grow with the rows counts too much."""
_SETTLED, _WINDOW = 1e-5, 10
"""The climb ends where so many iterations gained less than so many nats per observation."""


def all_points(model: BasisGP) -> int:
    """The points of mean and covariance together."""
    return sum(size for size in model.basis.sizes.values() if isinstance(size, int))


class CollapsedClimb:
    """L-BFGS on the bound at the best q(u), (D31), of a model with Gaussian noise; q(u) is in
    closed form after it.

    Steps on minibatches find the neighbourhood of a good kernel in fewer passes over the data. From
    there L-BFGS goes further: its gradients have no noise, and q(u) never lags behind kernel and
    points.

    :param variables: the hyperparameters and points that move.
    :param model: the model on inducing points whose bound is climbed.
    :param data: all rows, X [N, D] and Y [N, L].
    :param compile: False evaluates the bound eagerly.

    Cost N M^2 per evaluation, memory N M.
    """

    def __init__(
        self, variables: Sequence[tf.Variable], model: BasisGP, data: Batch, compile: bool = True
    ) -> None:
        self.variables, self.model, self.data = variables, model, data
        self.done = tf.Variable(False, trainable=False)
        self.bound: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = self._collapsed
        if compile:
            rows = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data]
            self.bound = Compiled(self.bound, input_signature=rows)

    @staticmethod
    def fits(model: BasisGP, num_data: int) -> bool:
        """Whether an evaluation on so many rows fits into memory."""
        return num_data * all_points(model) <= MOST_ENTRIES

    def seconds(self) -> float:
        """What an evaluation and its gradient take, judged by some rows."""
        few = [array[:_TIMED_ROWS] for array in self.data]
        self.compile()
        began = time.perf_counter()
        self._evaluate(*few)
        return (time.perf_counter() - began) * len(self.data[0]) / len(few[0])

    def compile(self) -> None:
        """Trace the bound and its gradient on some rows; no variable changes."""
        self._evaluate(*(array[:_TIMED_ROWS] for array in self.data))

    def run(
        self, evaluations: int, deadline: float, show: Callable[[str], object] | None = None
    ) -> tuple[LBFGSRun, tf.Tensor]:
        """What L-BFGS did, and the bound that it has left; an interrupt keeps the best that was
        found.

        :param evaluations: of the bound and its gradient, at most.
        :param deadline: a value of `time.perf_counter` after which no further iteration is begun.
        :param show: shows a line on where the climb is.
        :raises NumericalError: if the bound is not finite at the start.
        """
        found = self._climbed(evaluations, deadline, show) if self.variables else None
        elbo = self.set_best_q()
        return found or LBFGSRun(np.zeros(0), float(elbo), float(elbo), 0, True, CONVERGED), elbo

    def set_best_q(self) -> tf.Tensor:
        """Set q(u) to the best one for kernel and points as they are, and return its bound on all
        rows.
        """
        best = optimal_parameters(self.model, self.data)
        best.assign(self.model)
        self.done.assign(True)
        return best.elbo

    def _climbed(
        self, evaluations: int, deadline: float, show: Callable[[str], object] | None
    ) -> LBFGSRun:
        return climb(
            self.model,
            self.variables,
            lambda: self.bound(*self.data),
            evaluations=evaluations,
            deadline=deadline,
            stop=settled(_SETTLED * len(self.data[0]), _WINDOW),
            keep=True,
            show=show,
        )

    def _collapsed(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """The bound at the best q(u), (D31); not a number where it cannot be computed, from where
        L-BFGS turns back.
        """
        return self.model.basis.collapsed_elbo(self.model.kernel, regression(self.model, (X, Y)))

    def _evaluate(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = self.bound(X, Y)
        float(value)
        tape.gradient(value, self.variables)
