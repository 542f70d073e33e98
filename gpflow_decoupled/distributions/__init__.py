"""Distributions that TensorFlow Probability lacks.

Base distributions of affine-independent inference, w = A v + b: read the contract `base_density`,
then `densities`; `choose` finds one by name or makes one of a TFP distribution, and `scalar` has
two TFP distributions. Exponential families for factor graphs: the contract `family`, and
`families`.
"""

from . import families
from .base_density import Base
from .choose import BASES, BaseLike, BlockBase, TabulatedBase, base_variable
from .densities import (
    GeneralizedNormalBase,
    LaplaceBase,
    LogisticBase,
    NormalBase,
    NormalMixtureBase,
    SkewNormalBase,
    StudentTBase,
    VarianceGammaBase,
)
from .scalar import GeneralizedNormal, SkewNormal

__all__ = [
    "BASES", "Base", "BaseLike", "BlockBase", "GeneralizedNormal", "GeneralizedNormalBase",
    "LaplaceBase", "LogisticBase", "NormalBase", "NormalMixtureBase", "SkewNormal",
    "SkewNormalBase", "StudentTBase", "TabulatedBase", "VarianceGammaBase", "base_variable",
    "families",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
