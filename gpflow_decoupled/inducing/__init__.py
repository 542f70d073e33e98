"""Inducing points, and weights as inducing variables.

Read `select` (choice of points) first. `variables` makes inducing variables of arrays and refuses
unusable points, `weights` serve inference in weight space.
"""

from .select import select
from .variables import check_disjoint, check_inducing
from .weights import LinearWeights, Weights

__all__ = ["LinearWeights", "Weights", "check_disjoint", "check_inducing", "select"]


def __dir__() -> list[str]:
    return sorted(__all__)
