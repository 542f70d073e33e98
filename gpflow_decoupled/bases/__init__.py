"""Bases: what q(f) is. State from `factor`, moments from `mean_and_cov`, divergence from `prior_kl`."""

from .affine_independent import AffineIndependentBasis
from .base import Basis, Features, Gaussian
from .coupled import CoupledBasis
from .decoupled import DecoupledBasis
from .dual import DualBasis
from .hybrid import HybridBasis
from .orthogonal import OrthogonalBasis
from .site import SiteBasis
from .solve import SolveBasis

__all__ = [
    "AffineIndependentBasis", "Basis", "CoupledBasis", "DecoupledBasis", "DualBasis", "Features", "Gaussian", "HybridBasis",
    "OrthogonalBasis", "SiteBasis", "SolveBasis",
]  # fmt: skip
