"""Distributions that TensorFlow Probability lacks.

Base distributions of affine-independent inference, w = A v + b: `densities` has the contract and
those with formulas; `choose` finds one by name or makes one of a TFP distribution. Exponential
families for factor graphs: the contract `family`, and `families`.
"""

from . import families
from .choose import BASES, BaseLike, BlockBase, base_variable
from .densities import (
    Base,
    GeneralizedNormalBase,
    LaplaceBase,
    LogisticBase,
    NormalBase,
    NormalMixtureBase,
    SkewNormalBase,
    StudentTBase,
)

__all__ = [
    "BASES", "Base", "BaseLike", "BlockBase", "GeneralizedNormalBase", "LaplaceBase",
    "LogisticBase", "NormalBase", "NormalMixtureBase", "SkewNormalBase", "StudentTBase",
    "base_variable", "families",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
