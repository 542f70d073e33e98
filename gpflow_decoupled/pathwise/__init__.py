"""Functions drawn from a posterior, for Thompson sampling and other uses that evaluate one draw at many inputs.

A draw from the posterior is a draw from the prior plus a correction (Matheron's rule). `samples` has `pathwise_samples`,
which users call; read it first. `prior` draws functions from the prior. There are two corrections: that of q(f), in
`basis_correction`, for which `projection` computes what draws from the prior imply for the values on which a basis conditions;
and that given all data, in `data_correction`, for models with a mean on all data. `arrays` has the products of draws that they
need.
"""

from .basis_correction import BasisCorrection, basis_correction
from .data_correction import DataCorrection, data_correction
from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates
from .samples import Correction, PathwiseSamples, pathwise_samples

__all__ = [
    "BasisCorrection", "Correction", "DataCorrection", "PathwiseSamples", "PriorDraws", "basis_correction", "data_correction",
    "draw_prior", "pathwise_samples", "prior_coordinates",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
