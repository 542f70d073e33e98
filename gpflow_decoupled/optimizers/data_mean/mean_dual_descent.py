"""Stochastic dual descent for users."""

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
    """The mean on all data by steps on random rows of the kernel matrix, in certified rounds.

    Problem and result as in `ConjugateGradients`, which are faster with a good preconditioner. A
    round is a conjugate-gradient step, some epochs (passes over the rows), and a full product that
    certifies the gap.

    Source: Lin et al. 2024 (arXiv:2310.20581), algorithm 1, in coordinates of unit noise.

    :param tolerance: largest certified gap, in nats.
    :param epochs: limit of passes over the rows per solve.
    :param correct_every: epochs of a round, which adds two products.
    :param batch_size: B, rows of a step; down to about fifty, smaller is better per epoch.
    :param step_size: 1 is stable, about 1.3 the limit.
    :param momentum: Nesterov's rho, in [0, 1).
    :param max_steps: this, `rank` and `float32` as in `ConjugateGradients`; the certificate is in
        full precision.
    :param seed: of the rows.
    :param progress: show a progress bar.

    Cost per step: B N D; an epoch costs about two products. Memory N (R + L). Example::

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
