"""Thin GPflow models: kernel, likelihood, mean function, basis."""

from .affine_independent.gp import AffineIndependentGP
from .basis_gp import BasisGP
from .conjugate import CVIGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP
from .dtc import DTC
from .factor_graph.factors import Factor, SampledFactor, prior_factor
from .factor_graph.graph import FactorGraph
from .full_gp import FullGP
from .lcl import LCLGP
from .linear.affine_glm import AffineIndependentGLM
from .linear.glm import CVIGLM, WeightsPosterior, weights_posterior
from .linear.lcl_glm import LCLGLM
from .monte_carlo import MonteCarlo
from .sparse_conjugate import SparseCVIGP

__all__ = [
    "AffineIndependentGLM", "AffineIndependentGP", "BasisGP", "CVIGLM", "CVIGP", "DTC", "DVGP", "Factor", "FactorGraph",
    "FullGP", "HDVGP", "LCLGLM", "LCLGP", "MonteCarlo", "ODVGP", "SOLVEGP", "SampledFactor", "SparseCVIGP",
    "WeightsPosterior", "prior_factor", "weights_posterior",
]  # fmt: skip
