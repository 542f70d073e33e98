"""Thin GPflow models: kernel, likelihood, mean function, basis."""

from .basis_gp import BasisGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP

__all__ = ["BasisGP", "DVGP", "HDVGP", "ODVGP", "SOLVEGP"]
