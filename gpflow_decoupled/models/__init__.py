"""Thin GPflow models: kernel, likelihood, mean function, basis."""

from .affine_glm import AffineIndependentGLM
from .affine_gp import AffineIndependentGP
from .basis_gp import BasisGP
from .conjugate import CVIGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP
from .full_gp import FullGP
from .glm import CVIGLM, WeightsPosterior, weights_posterior
from .lcl import LCLGP
from .lcl_glm import LCLGLM
from .sparse_conjugate import SparseCVIGP

__all__ = [
    "AffineIndependentGLM", "AffineIndependentGP", "BasisGP", "CVIGLM", "CVIGP", "DVGP", "FullGP", "HDVGP", "LCLGLM", "LCLGP",
    "ODVGP", "SOLVEGP", "SparseCVIGP", "WeightsPosterior", "weights_posterior",
]  # fmt: skip
