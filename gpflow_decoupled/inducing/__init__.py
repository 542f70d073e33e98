"""Inducing variables: how to choose inducing points, the checks that models make of them, and
weights as inducing variables.

`select` chooses points from data. `checks` refuses points that cannot be used, and `variables`
makes GPflow's inducing variables of arrays. `weights` and `linear_kernel` treat the weights of a
linear function as inducing variables, so that sparse inference becomes inference in weight space.
Read `select` first; the others can be read alone.
"""

from .checks import check_disjoint, check_inducing
from .linear_kernel import LinearWeights
from .select import select
from .weights import Weights

__all__ = ["LinearWeights", "Weights", "check_disjoint", "check_inducing", "select"]


def __dir__() -> list[str]:
    return sorted(__all__)
