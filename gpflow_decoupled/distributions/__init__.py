"""Distributions that TensorFlow Probability lacks, or of which it lacks a method.

Base distributions: affine-independent inference (Challis & Barber 2012) works with w = A v + b, where the v_d are independent
with a standardised density, the base distribution. `base` has the contract and is to be read first; `closed_form`, `skewed`,
`generalized`, `variance_gamma`, `student_t`, `mixture` and `tabulated` are the families; `choose` finds one by its name.
`skew_normal` and `generalized_normal` (with its characteristic function, `generalized_transform`) are the TFP distributions
behind two of them. `families` is a package of its own: exponential families in natural parameters, for factor graphs.
"""

from . import families
from .base import Base
from .choose import BASES, BaseLike, base_variable
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
    "BASES", "Base", "BaseLike", "GeneralizedNormal", "GeneralizedNormalBase", "LaplaceBase", "LogisticBase", "NormalBase",
    "NormalMixtureBase", "SkewNormal", "SkewNormalBase", "StudentTBase", "TabulatedBase", "VarianceGammaBase",
    "base_variable", "families",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
