"""Inducing points, and weights as inducing variables.

Read `select` (choice of points) first. `point_checks` refuses unusable points, `variables` makes
inducing variables of arrays, `weights` with `linear_kernel` serve inference in weight space.
"""

from .linear_kernel import LinearWeights
from .point_checks import check_disjoint, check_inducing
from .select import select
from .weights import Weights

__all__ = ["LinearWeights", "Weights", "check_disjoint", "check_inducing", "select"]


def __dir__() -> list[str]:
    return sorted(__all__)
