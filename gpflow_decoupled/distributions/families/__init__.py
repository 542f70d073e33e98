"""Exponential families in natural and expectation parameters, for factor graphs.

Read the contract `family` and `gamma`, the simplest, first; each family has a file (`beta`,
`categorical`, `dirichlet`, `gaussian`, `inverse_gamma`). `log_prob` defines a family from a log
density, with the solves of `fisher`; `concentrations` has functions of Dirichlet concentrations.
"""

from .beta import Beta
from .categorical import Categorical
from .concentrations import dirichlet_fisher_solve, dirichlet_log_mean, dirichlet_log_partition
from .dirichlet import Dirichlet
from .family import Belief, Family, Natural
from .gamma import Gamma
from .gaussian import Gaussian
from .inverse_gamma import InverseGamma
from .log_prob import LogProbFamily

__all__ = [
    "Belief", "Beta", "Categorical", "Dirichlet", "Family", "Gamma", "Gaussian", "InverseGamma",
    "LogProbFamily", "Natural", "dirichlet_fisher_solve", "dirichlet_log_mean",
    "dirichlet_log_partition",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
