"""Distributions that TFP lacks, or lacks a method of, and the base variables of affine-independent inference."""

from . import families
from .base import Base
from .choose import BASES, base_variable
from .closed_form import LaplaceBase, LogisticBase, NormalBase
from .generalized import GeneralizedNormalBase
from .generalized_normal import GeneralizedNormal
from .mixture import NormalMixtureBase
from .skew_normal import SkewNormal
from .skewed import SkewNormalBase
from .student_t import StudentTBase
from .tabulated import TabulatedBase
from .variance_gamma import VarianceGammaBase

__all__ = [
    "BASES", "Base", "GeneralizedNormal", "GeneralizedNormalBase", "LaplaceBase", "LogisticBase", "NormalBase",
    "NormalMixtureBase", "SkewNormal", "SkewNormalBase", "StudentTBase", "TabulatedBase", "VarianceGammaBase",
    "base_variable", "families",
]  # fmt: skip
