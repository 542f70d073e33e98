"""The result of `ConjugateGradients` and `StochasticDualDescent`."""

from __future__ import annotations

__all__ = ["MeanResult"]

from dataclasses import dataclass

from ..results import RunResult


@dataclass(kw_only=True, repr=False)
class MeanResult(RunResult):
    """Result of `ConjugateGradients.run` and `StochasticDualDescent.run`.

    A step is one linear solve. `history` has arrays [steps] "step", "seconds", "elbo" (nats), "gap"
    (nats) and "products" (so far). Example::

        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result, result.gap)
    """

    gap: float
    """The last solve is at most this many nats below its maximum over the mean; an estimate if not
    `certified`.

    Of the ELBO for Gaussian noise; else of the quadratic of the last step's sites, and `converged`
    means that a step gains less than the tolerance.
    """
    gaps: list[float]
    """Gaps of the last solve in nats, up to `gap`: per product for conjugate gradients.

    These come from the recursion's residual, enlarged by its drift, which is no bound.
    """
    certified: bool
    """True if `gap` is a bound, by a product in full precision.

    False for `certify=False` and after Ctrl-C in that product; `gap` is then an estimate.
    """
    products: int
    """Products with the kernel matrix [N, N]; a pass over its rows in batches counts as one."""

    def __str__(self) -> str:
        gap = f"gap {self.gap:.2g} nats" if self.certified else f"gap about {self.gap:.2g} nats"
        return (
            f"{self.steps} solves with {self.products} products in {self.seconds:.1f} s, ELBO"
            f" {self.elbo:.6g}, {gap}, stopped: {self.reason}"
        )
