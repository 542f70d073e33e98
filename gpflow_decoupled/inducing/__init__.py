"""Choice and checks of inducing inputs, and the weights of linear functions as inducing variables."""

from .checks import check_disjoint, check_inducing
from .linear_kernel import LinearWeights
from .select import select
from .weights import Weights

__all__ = ["LinearWeights", "Weights", "check_disjoint", "check_inducing", "select"]
