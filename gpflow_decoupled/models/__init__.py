"""Thin GPflow models: kernel, likelihood, mean function, basis."""

from .basis_gp import BasisGP
from .conjugate import CVIGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP
from .glm import CVIGLM, WeightsPosterior, weights_posterior
from .sparse_conjugate import SparseCVIGP

__all__ = [
    "BasisGP", "CVIGLM", "CVIGP", "DVGP", "HDVGP", "ODVGP", "SOLVEGP", "SparseCVIGP", "WeightsPosterior",
    "weights_posterior",
]  # fmt: skip
