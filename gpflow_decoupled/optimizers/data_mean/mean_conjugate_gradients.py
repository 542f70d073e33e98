"""The mean on all data by preconditioned conjugate gradients."""

from __future__ import annotations

__all__ = ["ConjugateGradients"]

from dataclasses import dataclass, replace

import tensorflow as tf

from ...inputs import check_whole
from .mean_optimizer import MeanOptimizer
from .mean_solution import MeanSolution, Report, Solve
from .solve_mean import solve_mean
from .system import MeanSystem


@dataclass(frozen=True)
class ConjugateGradients(MeanOptimizer):
    """The mean on all data by preconditioned conjugate gradients, to a certified gap in nats.

    The posterior mean of a GP is a sum over all N training inputs, and its covariance may still
    live on M inducing points beta. At the sites of q(f), which for Gaussian noise are the data
    themselves, the coefficients solve (K + W^-1) a = y~. Each product with K is computed in blocks,
    and K is never stored. The run ends when the bound is certified to be within `tolerance` nats of
    its maximum over the mean: the gap (D32) is an upper bound of the distance, and not an estimate.
    For other likelihoods, and where a `LinearCoregionalization` mixes the latents, solves and
    updates of the sites take turns until a whole step raises the bound by less than `tolerance`.
    The gap is then that of the last linear solve, at the sites as they were before it, and not the
    distance of the bound from its optimum. A step that would lower the bound is shortened, which
    takes no new solve. Ctrl-C ends a run with what it has found, see `MeanResult.certified`.

    :param tolerance: nats.
    :param max_products: of a solve; the run ends there if the gap is not reached, and says so.
    :param max_steps: at most so many solves, shortened steps among them, where one is not enough.
    :param rank: R, points of the preconditioner, beta included; more points take fewer products.
        None is 1000, or N / 4 if that is less. It costs N R^2 per solve and N R numbers of memory.
    :param float32: compute products in float32 and add them up in float64, two to four times
        faster. This is for a SquaredExponential, Matern32 or Matern52; other kernels, and sums and
        products of kernels, are computed in the dtype of the data all the same, and so are solves
        in which rounding errors, measured on some rows, are more than a fifth of the noise
        variance.
    :param certify: end with a product in full precision, from which the gap is computed. Without it
        the gap is an estimate, by the residual that conjugate gradients carry along; saves one or
        two products in full precision per solve.
    :param progress: show a progress bar.
    :raises DataError: for settings out of range.

    Cost per product: N^2 D; memory N (R + L). `run(model, data, strategy=strategy)` shares the
    products out to the replicas of a `tf.distribute` strategy: each computes N^2 D / replicas of a
    product and sends 8 N L bytes; the preconditioner, N R^2,
    is computed by each worker for itself. All workers have the same result, that of one process to
    round-off. Example::

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
    progress: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, max_products=self.max_products)

    def rough(self, tolerance: float) -> ConjugateGradients:
        """See `MeanOptimizer.rough`; nothing in full precision."""
        return replace(self, tolerance=max(self.tolerance, tolerance), certify=False)

    def solver(self, dtype: tf.DType | None) -> Solve:
        """Conjugate gradients for one system after the other, from where the last one ended."""

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
