"""What a run of `ConjugateGradients` or `StochasticDualDescent` returns."""

from __future__ import annotations

__all__ = ["MeanResult"]

from dataclasses import dataclass

from ..results import RunResult


@dataclass(kw_only=True, repr=False)
class MeanResult(RunResult):
    """The record of `ConjugateGradients.run` and `StochasticDualDescent.run`.

    A step is one linear solve: one for Gaussian noise, several where sites have to be found. The
    arrays [steps] of `history`
    have one entry per step: "step", "seconds", "elbo" (nats), "gap" (nats) and "products" (so far).
    Example::

        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result, result.gap)
    """

    gap: float
    """Nats: in the last linear solve, the bound is at most so far below its maximum over the mean.
    For Gaussian noise that is the ELBO itself. For other likelihoods, and for mixed outputs, it is
    the quadratic of the sites as they were before the last step, so that this is no distance of the
    ELBO from its optimum: there `converged` says that a step gains less than the tolerance. An
    estimate where it is not `certified`."""
    gaps: list[float]
    """The gaps of the last solve in nats. Of conjugate gradients one after each product, by the
    residual that they carry along: in float32 it drifts by some per cent of the gap, and the
    entries are enlarged by the drift that the next product in full precision shows, which is
    measured and no bound. Of a descent one wherever it computed one. The last one is `gap`."""
    certified: bool
    """Whether `gap` is a bound, computed from the coefficients by a product in full precision.
    False for `certify=False`, and where Ctrl-C came during that product: then it is an estimate, by
    the residual that conjugate gradients carry along."""
    products: int
    """Products with the kernel matrix [N, N]; passes over its rows in batches count as one each."""

    def __str__(self) -> str:
        """One line: solves, products, time, bound, gap and why the run ended."""
        gap = f"gap {self.gap:.2g} nats" if self.certified else f"gap about {self.gap:.2g} nats"
        return (
            f"{self.steps} solves with {self.products} products in {self.seconds:.1f} s, ELBO"
            f" {self.elbo:.6g}, {gap}, stopped: {self.reason}"
        )
