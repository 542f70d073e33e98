"""Bases: parametrisations of q(f), the approximate posterior process.

Read the contract `base`, then `inducing`, the contract on inducing variables with the Gaussian that
most of them hold, and `coupled`, the simplest. `orthogonal`, `decoupled`, `solve` and
`mean_on_data` separate the mean from the covariance; their means are in `kernel_mean`. `site`,
`state_space`, `dual` and `affine_independent` are for models that own their data. `optimum` has the
best q for Gaussian noise.
"""

from . import parameters
from .affine_independent import AffineIndependentBasis
from .base import Basis, Features, GaussianPart
from .coupled import CoupledBasis
from .decoupled import DecoupledBasis
from .dual import DualBasis
from .inducing import InducingBasis
from .optimum import OptimalParameters, Regression
from .orthogonal import HybridBasis, MeanOnDataBasis, OrthogonalBasis
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
