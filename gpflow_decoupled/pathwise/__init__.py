"""Functions drawn from a posterior, for Thompson sampling and other uses that evaluate one draw at
many inputs.

A draw from the posterior is a draw from the prior plus a correction (Matheron's rule). `samples`
has `pathwise_samples`, which users call; read it first. `prior` draws functions from the prior.
There are two corrections: that of q(f), in `basis_correction`, for which `projection` computes what
draws from the prior imply for the values on which a basis conditions; and that given all data, in
`data_correction`, for models with a mean on all data. `arrays` has the products of draws that they
need.
"""

from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates
from .samples import PathwiseSamples, pathwise_samples

__all__ = ["PathwiseSamples", "PriorDraws", "draw_prior", "pathwise_samples", "prior_coordinates"]


def __dir__() -> list[str]:
    return sorted(__all__)
