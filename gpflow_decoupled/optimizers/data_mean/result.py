"""What a run of `ConjugateGradients` or `StochasticDualDescent` returns."""

from __future__ import annotations

__all__ = ["MeanResult"]

from dataclasses import dataclass

from ..results import RunResult


@dataclass(kw_only=True, repr=False)
class MeanResult(RunResult):
    """The record of `ConjugateGradients.run` and `StochasticDualDescent.run`.

    A step is one linear solve: one for Gaussian noise, several where sites have to be found. The arrays [steps] of `history`
    have one entry per step: "step", "seconds", "elbo" (nats), "gap" (nats) and "products" (so far). Example::

        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result, result.gap)
    """

    gap: float
    """Nats: at the sites of q(f) the bound is at most so far below its maximum over the mean."""
    gaps: list[float]
    """The gaps of the last solve in nats: of conjugate gradients after each product, as they carry it along, which drifts by a
    few per cent where products are in float32; of a descent wherever it computed one. The last one is computed anew from the
    coefficients: it is `gap`, and a bound."""
    products: int
    """Products with the kernel matrix [N, N]; passes over its rows in batches count as one each."""

    def __str__(self) -> str:
        """One line: solves, products, time, bound, gap and why the run ended."""
        return (
            f"{self.steps} solves with {self.products} products in {self.seconds:.1f} s, ELBO {self.elbo:.6g}, "
            f"gap {self.gap:.2g} nats, stopped: {self.reason}"
        )
