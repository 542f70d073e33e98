"""The result of `MixtureAscent`."""

from __future__ import annotations

__all__ = ["MixtureResult"]

from dataclasses import dataclass

import numpy as np

from ..affine_independent.affine_result import StagedResult
from .mixture_posterior import MixturePosterior


@dataclass(kw_only=True, repr=False)
class MixtureResult(StagedResult):
    """Result of `MixtureAscent.run`; `elbo` is a lower bound of log Z in nats.

    `history` has arrays [steps]: "step", "seconds", "elbo" (best so far in this stage),
    "evaluations" and "stage" (0 for the Gaussian, then 1, 2, ... per start).

    Example::

        result = MixtureAscent(components=3).run(model)
        print(result.gain, "nats above the best Gaussian")
        density = result.posterior.predict_f_density(Xnew, np.linspace(-5.0, 5.0, 101))
    """

    elbo_estimate: float
    """The mixture's bound with its entropy estimated from draws, in nats.

    Unbiased: a lower bound of log Z up to its standard error. NaN without draws.
    """
    standard_error: float
    """Of `elbo_estimate`, in nats."""
    start_elbos: np.ndarray
    """The bound at the end of each climb, in nats, [starts]."""
    kept: str
    """The q in `posterior`: "mixture", or "gaussian" if its bound is greater."""
    posterior: MixturePosterior
    """q(w) and its predictions; the run leaves the model unchanged."""

    def __str__(self) -> str:
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; estimated as {self.elbo_estimate:.6g} +-"
            f" {self.standard_error:.2g}, Gaussian {self.gaussian_elbo:.6g}), {self.evaluations}"
            f" evaluations in {self.seconds:.2f} s, stopped: {self.reason}"
        )
