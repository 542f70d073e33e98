"""Kernel, noise and inducing points by L-BFGS on all rows, at the best q(u) for each of them."""

from __future__ import annotations

__all__ = ["CollapsedClimb"]

import time

import tensorflow as tf

from ....bases.parts.data_mean import DataMean
from ....compilation import Compiled
from ....inducing.variables import count_points
from ....models import BasisGP
from ....optimizers import collapsed_elbo, optimal_parameters
from ....optimizers.data_mean.hyperparameters import climb, hyperparameters_of
from ....optimizers.lbfgs import LBFGSRun, settled
from ...batches import Batch

_MOST_ENTRIES = 3e7
"""N M of the largest matrices [M, N], of which an evaluation and its gradient keep about seven at once: 1.7 GB."""
_TIMED_ROWS = 4096
"""Rows whose evaluation is timed; for fewer, what does not grow with the rows counts too much."""
_SETTLED, _WINDOW = 1e-5, 10
"""The climb ends where so many iterations gained less than so many nats per observation."""


class CollapsedClimb:
    """L-BFGS on the bound at the best q(u), (D31), of a coupled model with Gaussian noise; q(u) is in closed form after it.

    Steps on minibatches find the neighbourhood of a good kernel in fewer passes over the data. From there L-BFGS goes further:
    its gradients have no noise, and q(u) never lags behind kernel and points.

    :param model: the model with the mean on all data, whose hyperparameters and points move.
    :param mean: its mean.
    :param view: the coupled model that shares its Parameters.
    :param data: all rows, X [N, D] and Y [N, L].

    Cost N M^2 per evaluation, memory N M.
    """

    def __init__(self, model: BasisGP, mean: DataMean, view: BasisGP, data: Batch) -> None:
        self.model, self.mean, self.view, self.data = model, mean, view, data
        self.done = tf.Variable(False, trainable=False)
        rows = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data]
        self._bound: Compiled = Compiled(lambda X, Y: collapsed_elbo(view, (X, Y)), input_signature=rows)

    @staticmethod
    def fits(view: BasisGP, num_data: int) -> bool:
        """Whether an evaluation on so many rows fits into memory."""
        return num_data * count_points(view.basis.beta) <= _MOST_ENTRIES

    def seconds(self) -> float:
        """What an evaluation and its gradient take, judged by some rows."""
        few = [array[:_TIMED_ROWS] for array in self.data]
        variables = hyperparameters_of(self.model, self.mean)

        def evaluation() -> None:
            with tf.GradientTape() as tape:
                value = self._bound(*few)
            float(value)
            tape.gradient(value, variables)

        evaluation()  # compiles
        began = time.perf_counter()
        evaluation()
        return (time.perf_counter() - began) * len(self.data[0]) / len(few[0])

    def run(self, evaluations: int, deadline: float) -> tuple[LBFGSRun, tf.Tensor]:
        """What L-BFGS did, and the bound that it has left; an interrupt keeps the best that was found.

        :param evaluations: of the bound and its gradient, at most.
        :param deadline: a value of `time.perf_counter` after which no further iteration is begun.
        :raises NumericalError: if the bound is not finite at the start.
        """
        ends = settled(_SETTLED * len(self.data[0]), _WINDOW)
        found = climb(
            self.model, self.mean, lambda: self._bound(*self.data), evaluations=evaluations, deadline=deadline,
            stop=ends, keep=True,
        )  # fmt: skip
        best = optimal_parameters(self.view, self.data)
        best.assign(self.view)
        self.done.assign(True)
        return found, best.elbo
