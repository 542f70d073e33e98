"""Distributions that TensorFlow Probability lacks, or of which it lacks a method.

Base distributions: affine-independent inference (Challis & Barber 2012) works with w = A v + b,
where the v_d are independent with a standardised density, the base distribution. `base` has the
contract and is to be read first; `closed_form`, `skewed`, `generalized`, `variance_gamma`,
`student_t`, `mixture` and `tabulated` are the families; `choose` finds one by its name, and
`blocks` gives each block of variables another one. `scalar` has the TFP distributions behind two of
them, `SkewNormal` and `GeneralizedNormal`. `families` is a package of its own: exponential families
in natural parameters, for factor graphs.
"""

from . import families
from .base import Base
from .blocks import BlockBase
from .choose import BASES, BaseLike, base_variable
from .closed_form import LaplaceBase, LogisticBase, NormalBase
from .generalized import GeneralizedNormalBase
from .mixture import NormalMixtureBase
from .scalar.generalized_normal import GeneralizedNormal
from .scalar.skew_normal import SkewNormal
from .skewed import SkewNormalBase
from .student_t import StudentTBase
from .tabulated import TabulatedBase
from .variance_gamma import VarianceGammaBase

__all__ = [
    "BASES", "Base", "BaseLike", "BlockBase", "GeneralizedNormal", "GeneralizedNormalBase",
    "LaplaceBase", "LogisticBase", "NormalBase", "NormalMixtureBase", "SkewNormal",
    "SkewNormalBase", "StudentTBase", "TabulatedBase", "VarianceGammaBase", "base_variable",
    "families",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
