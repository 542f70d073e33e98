"""The option `mean_solver` of `fit`."""

from __future__ import annotations

__all__ = ["METHODS", "MeanSolver"]

from dataclasses import dataclass

from ..errors import check_option
from ..inputs import check_rate
from .schedules import given

METHODS = ("adam", "natural", "newton")


@dataclass(frozen=True)
class MeanSolver:
    """The optimizer of the mean coefficients in `fit`.

    :param method: "adam"; "natural", a natural gradient; or "newton", by conjugate gradients, for
        `OrthogonalBasis`. For a mean on all data pass a `ConjugateGradients` or a
        `StochasticDualDescent` as `mean_solver` instead.
    :param learning_rate: step size; by default 1 for "natural" and "newton"; for "adam" 0.03 up to
        1000 mean points, then in inverse proportion to their number.
    :raises UnknownOptionError: for another method.
    :raises DataError: for a step size not above 0.

    Example::

        fit(model, (X, Y), mean_solver=MeanSolver("natural", learning_rate=0.5))
    """

    method: str = "adam"
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_option("mean_solver", self.method, METHODS)
        check_rate(**given(mean_learning_rate=self.learning_rate))
