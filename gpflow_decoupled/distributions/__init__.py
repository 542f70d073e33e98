"""Distributions that TensorFlow Probability lacks.

Base distributions of affine-independent inference, w = A v + b: read the contract `base_density`
first.

`closed_form`, `skewed`, `generalized`, `variance_gamma`, `student_t`, `mixture` and `tabulated` are
the families, `choose` finds one by name, `block_base` combines several, `scalar` has TFP
distributions. `families` has exponential families for factor graphs.
"""

from . import families
from .base_density import Base
from .block_base import BlockBase
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
