"""Limits and step sizes of a run, and the mean's solver."""

from __future__ import annotations

__all__ = [
    "Limits", "METHODS", "MeanSolver", "Rates", "Schedule", "StepSizes", "annealed", "given",
    "ramped",
]  # fmt: skip

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import check_option
from ..inputs import check_rate, check_whole

METHODS = ("adam", "natural", "newton")
"""Of a `MeanSolver`."""
FLOOR = 0.02
"""Share of the step size that is left at the end of an annealed run."""


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class Limits:
    """When a run ends; None is no limit."""

    steps: int | None
    seconds: float | None

    def __post_init__(self) -> None:
        check_whole(1, **given(steps=self.steps))
        check_rate(**given(seconds=self.seconds))

    def share(self, step: int, seconds: float) -> float:
        """The share of the run that is done, in [0, 1]."""
        # whichever limit is nearer; a run without limits is over
        shares = [step / self.steps] if self.steps else []
        shares += [seconds / self.seconds] if self.seconds else []
        return max(shares, default=1.0)


@dataclass(frozen=True)
class Schedule:
    """Step sizes of `fit` over a run; None is the default of the model's family.

    :param ramp_steps: steps over which the step size of q grows from 1e-4; 10, for models on
        inducing points alone.
    :param anneal: final share of the run in which all step sizes fall to 2 %; 0.2, and 0 for factor
        graphs.
    :param refresh_every: steps between updates of the scaling of the mean coefficients (100), or of
        q of an affine-independent model (20).

    Example::

        fit(model, (X, Y), schedule=Schedule(ramp_steps=0, anneal=0.5))
    """

    ramp_steps: int | None = None
    anneal: float | None = None
    refresh_every: int | None = None

    def __post_init__(self) -> None:
        check_whole(0, **given(ramp_steps=self.ramp_steps))
        check_whole(1, **given(refresh_every=self.refresh_every))
        if isinstance(self.anneal, bool) or self.anneal != 0.0:  # zero: step sizes stay
            check_rate(1.0, **given(anneal=self.anneal))


@dataclass(frozen=True)
class MeanSolver:
    """The optimizer of the mean coefficients in `fit`.

    :param method: "adam"; "natural", a natural gradient; or "newton", by conjugate gradients, for
        `OrthogonalBasis`.
    :param learning_rate: step size; by default 1 for "natural" and "newton"; for "adam" 0.03, less
        beyond 1000 mean points.

    Example::

        fit(model, (X, Y), mean_solver=MeanSolver("natural", learning_rate=0.5))
    """

    method: str = "adam"
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_option("mean_solver", self.method, METHODS)
        check_rate(**given(mean_learning_rate=self.learning_rate))


class StepSizes(NamedTuple):
    """Step sizes of one step, after ramp and annealing."""

    natural_gradient: float | None
    """Of the update of q; None where q is left to the optimizer."""
    learning_rate: float
    """Of the optimizer of everything else."""
    mean_learning_rate: float
    """Of the coefficients of the mean points."""


@dataclass(frozen=True)
class Rates:
    """Step sizes of a run before ramp and annealing, named as arguments of `fit`."""

    natural_gradient: float | None
    learning_rate: float
    ramp_steps: int
    anneal: float
    mean_learning_rate: float = 1.0

    def at(self, step: int, share: float, end: float = 1.0) -> StepSizes:
        """Sizes of step 0, 1, ... at a share of the run; they have fallen at `end`."""
        factor, rho = annealed(min(1.0, share / end), self.anneal), self.natural_gradient
        natural = None if rho is None else factor * ramped(step, rho, self.ramp_steps)
        return StepSizes(natural, factor * self.learning_rate, factor * self.mean_learning_rate)


def ramped(step: int, final: float, steps: int, initial: float = 1e-4) -> float:
    """Log-linear from `initial` to `final` over `steps` steps (Salimbeni et al. 2018,
    arXiv:1803.09151).
    """
    # From a poor q, a natural gradient may otherwise leave the likelihood's domain.
    if step >= steps or initial >= final:
        return final
    return initial * (final / initial) ** (step / steps)


def annealed(share: float, tail: float) -> float:
    """1, then half a cosine down to 2 % in the last `tail` of the run, against minibatch noise."""
    if tail <= 0.0 or share <= 1.0 - tail:
        return 1.0
    phase = min(1.0, (share - (1.0 - tail)) / tail)
    return FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + math.cos(math.pi * phase))
