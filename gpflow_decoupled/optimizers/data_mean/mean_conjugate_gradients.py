"""Conjugate gradients for users."""

from __future__ import annotations

__all__ = ["ConjugateGradients"]

from dataclasses import dataclass, replace
from typing import ClassVar

import tensorflow as tf

from ...errors import check_option
from ...inputs import check_whole
from .mean_optimizer import MeanOptimizer
from .mean_solution import MeanSolution, Report, Solve
from .neighbour_factors import PRECONDITIONERS
from .solve_mean import solve_mean
from .system import MeanSystem


@dataclass(frozen=True)
class ConjugateGradients(MeanOptimizer):
    """The mean on all data by preconditioned conjugate gradients, to a certified gap in nats.

    Gaussian noise of one variance takes one solve; for other likelihoods solves and updates of the
    sites alternate until a step gains less than `tolerance`, and the gap is the last solve's. K is
    never stored. Ctrl-C ends a run with its result. Cost per product: N^2 D, shared by the replicas
    of a `strategy`; memory N (R + L).

    :param tolerance: largest gap, in nats.
    :param max_products: limit of a solve, reported if reached.
    :param max_steps: limit of solves and shortened steps.
    :param rank: R, points of the preconditioner, beta included, at N R^2 per solve; None is
        min(1000, N / 4).
    :param float32: products in float32, sums in float64, two to four times faster; for
        SquaredExponential, Matern32 and Matern52, if rounding errors are below a fifth of the
        noise.
    :param certify: compute the gap from a product in full precision; False estimates it.
    :param progress: show a progress bar.
    :param preconditioner: "points", R of them; "neighbours", a sparse inverse factor from m = 60
        earlier rows, N m^3 / 3, better with little noise; "both", a half to a third of the products
        for N m^2 R at the start; "auto", the better of the first two, points if a `rank` is given.

    Example::

        model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), "data", beta)
        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result.gap, model.elbo((X, Y)))
    """

    tolerance: float = 0.1
    max_products: int = 200
    max_steps: int = 50
    rank: int | None = None
    float32: bool = True
    certify: bool = True
    preconditioner: str = "auto"
    progress: bool = False
    mixes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, max_products=self.max_products)
        check_option("preconditioner", self.preconditioner, PRECONDITIONERS)

    def rough(self, tolerance: float) -> ConjugateGradients:
        return replace(self, tolerance=max(self.tolerance, tolerance), certify=False)

    def solver(self, dtype: tf.DType | None) -> Solve:
        def solve(
            system: MeanSystem,
            start: tf.Tensor,
            K_start: tf.Tensor,
            *,
            deadline: float,
            report: Report,
        ) -> MeanSolution:
            return solve_mean(
                system,
                start,
                self.tolerance,
                self.max_products,
                K_start=K_start,
                dtype=dtype,
                deadline=deadline,
                report=report,
                certify=self.certify,
            )

        return solve
