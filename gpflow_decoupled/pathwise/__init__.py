"""Functions drawn from a posterior, for example for Thompson sampling.

Read `samples` first, with `pathwise_samples`: a prior draw plus a correction (Matheron's rule).
`prior` draws from the prior; the correction to q(f) is in `basis_correction`, with the whitened
values of `projection`; for a mean on all data in `data_correction`, for nearest neighbours in
`neighbour_correction`. `arrays` has products of draws.
"""

from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates
from .samples import PathwiseSamples, pathwise_samples

__all__ = ["PathwiseSamples", "PriorDraws", "draw_prior", "pathwise_samples", "prior_coordinates"]


def __dir__() -> list[str]:
    return sorted(__all__)
