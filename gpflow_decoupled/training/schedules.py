"""Step sizes over a run, as plain functions of the step and of the share of the run that is done."""

from __future__ import annotations

__all__ = ["annealed", "ramped"]

import math

FLOOR = 0.02
"""Share of the step size that is left at the end of an annealed run."""


def ramped(step: int, final: float, steps: int, initial: float = 1e-4) -> float:
    """Log-linear from `initial` to `final` over the first `steps` steps (Salimbeni et al. 2018, arXiv:1803.09151).

    A natural gradient from a q that is far from the posterior may otherwise leave the domain of the likelihood.
    """
    if step >= steps or initial >= final:
        return final
    return initial * (final / initial) ** (step / steps)


def annealed(share: float, tail: float) -> float:
    """1 until the last `tail` of the run, then half a cosine down to 2 %: averages out the noise of the minibatches.

    :param share: how much of the run is done, in [0, 1].
    """
    if tail <= 0.0 or share <= 1.0 - tail:
        return 1.0
    phase = min(1.0, (share - (1.0 - tail)) / tail)
    return FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + math.cos(math.pi * phase))
