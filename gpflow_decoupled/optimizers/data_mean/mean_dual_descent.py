"""The mean on all data by stochastic dual descent."""

from __future__ import annotations

__all__ = ["StochasticDualDescent"]

from dataclasses import dataclass
from typing import ClassVar

import tensorflow as tf

from ...errors import DataError
from ...inputs import check_rate, check_whole, is_number
from ...summaries import short_repr
from .descent import DualDescent
from .mean_optimizer import MeanOptimizer
from .mean_solution import Solve


@dataclass(frozen=True)
class StochasticDualDescent(MeanOptimizer):
    """The mean on all data by steps on random rows of the kernel matrix, in rounds whose ends are
    certified.

    What it solves, and what it leaves in the model, is that of `ConjugateGradients`. A step costs a
    batch of rows and not a product with the whole matrix. A run goes in rounds of epochs, passes
    over the rows: a step of preconditioned conjugate gradients, the epochs, and one product in
    full, which certifies the gap. Between these products nothing is certified: what the progress
    bar shows are estimates. The step size is chosen from the preconditioner, and is halved where
    the residual grows; the run then goes back to an earlier average. Where the preconditioner is
    good, conjugate gradients need fewer products; where it falls short, the first tens of products
    bring the mean closer here.

    Algorithm 1 of Lin et al. 2024, "Stochastic gradient descent for Gaussian processes done right"
    (arXiv:2310.20581), in coordinates in which the noise is one, (D52). The rounds are ours:
    directions of small eigenvalues need them.

    :param tolerance: nats. A solve ends once its gap is certified to be so small.
    :param epochs: at most so many passes over the rows per solve.
    :param correct_every: epochs of a round, each of which takes two products beside them.
    :param batch_size: B, rows of a step. Small batches get further in an epoch, down to about
        fifty, and large ones have less overhead.
    :param step_size: 1 is chosen to be stable, see (D52), and 1.3 is about the limit. A step that
        is too long costs an epoch per halving.
    :param momentum: rho in [0, 1), as of Nesterov.
    :param max_steps: at most so many solves, shortened steps among them, where one is not enough.
    :param rank: R, points of the preconditioner, beta included. None is 1000, or N / 4 if that is
        less. It costs N R^2 per solve and N R numbers of memory.
    :param float32: compute products in float32 and add them up in float64; the certificate is
        always computed in full.
    :param seed: of the rows; same seed, same run.
    :param progress: show a progress bar.
    :raises DataError: for settings out of range.

    Cost per step: B N D; an epoch costs about twice a product, which is symmetric. Memory N (R +
    L). Example::

        model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), "data", beta)
        result = StochasticDualDescent(epochs=20).run(model, (X, Y))
        print(result.gap, result.reason)
    """

    tolerance: float = 0.1
    epochs: int = 100
    correct_every: int = 10
    batch_size: int = 64
    step_size: float = 1.0
    momentum: float = 0.9
    max_steps: int = 50
    rank: int | None = None
    float32: bool = True
    seed: int = 0
    progress: bool = False
    not_on_replicas: ClassVar[str] = (
        "StochasticDualDescent takes many short steps on batches of rows, which replicas cannot"
        " share out: use ConjugateGradients with strategy, or leave strategy out."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(
            1, epochs=self.epochs, correct_every=self.correct_every, batch_size=self.batch_size
        )
        check_whole(0, seed=self.seed)
        check_rate(step_size=self.step_size)
        if not (is_number(self.momentum) and 0.0 <= self.momentum < 1.0):
            raise DataError(
                f"momentum={short_repr(self.momentum)} must be a number of at least 0 and below 1."
            )

    def solver(self, dtype: tf.DType | None) -> Solve:
        """Descents for one system after the other, with rows of one generator."""
        return DualDescent(
            tolerance=self.tolerance,
            epochs=self.epochs,
            correct_every=self.correct_every,
            batch_size=self.batch_size,
            step_size=self.step_size,
            momentum=self.momentum,
            seed=self.seed,
            dtype=dtype,
        )
