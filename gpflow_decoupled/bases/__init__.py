"""Bases: parametrisations of q(f), the approximate posterior process.

Read the contracts `base` and `inducing_basis` first; then `coupled` (with `one_gaussian`),
`decoupled`, `hybrid`, `orthogonal` and `mean_on_data` (with `orthogonal_mean`), `solve`. `site`,
`state_space`, `dual` and `affine_independent` (with `affine_map`) are for models that own their
data. `parts` has shared pieces, `parameters` other parameters of the same q(f).
"""

from . import parameters
from .affine_independent import AffineIndependentBasis
from .base import Basis, Features, GaussianPart
from .coupled import CoupledBasis
from .decoupled import DecoupledBasis
from .dual import DualBasis
from .hybrid import HybridBasis
from .inducing_basis import InducingBasis
from .mean_on_data import MeanOnDataBasis
from .orthogonal import OrthogonalBasis
from .parts.optimum import OptimalParameters, Regression
from .site import SiteBasis
from .solve import SolveBasis
from .state_space import StateSpaceBasis

__all__ = [
    "AffineIndependentBasis", "Basis", "CoupledBasis", "DecoupledBasis", "DualBasis", "Features",
    "GaussianPart", "HybridBasis", "InducingBasis", "MeanOnDataBasis", "OptimalParameters",
    "OrthogonalBasis", "Regression", "SiteBasis", "SolveBasis", "StateSpaceBasis", "parameters",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
