"""Functions drawn from a posterior, for example for Thompson sampling.

Read `samples` first, with `pathwise_samples`: a draw of `prior` plus one of the `corrections`
(Matheron's rule).
"""

from .prior import PriorDraws, draw_prior, prior_coordinates
from .samples import PathwiseSamples, pathwise_samples

__all__ = ["PathwiseSamples", "PriorDraws", "draw_prior", "pathwise_samples", "prior_coordinates"]


def __dir__() -> list[str]:
    return sorted(__all__)
