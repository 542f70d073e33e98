"""Exponential families in natural and expectation parameters, for mean-field inference on factor
graphs.

`base` has the contract `Family` and is to be read first, with `gamma` as the simplest example;
there is one file per family. `log_prob` is for families of one's own, which need a log density,
draws and statistics alone; `fisher` has their solves. `concentrations` has the functions of
Dirichlet concentrations that `dirichlet`, `beta` and the topic models share.
"""

from .base import Belief, Family, Natural
from .beta import Beta
from .categorical import Categorical
from .concentrations import dirichlet_fisher_solve, dirichlet_log_mean, dirichlet_log_partition
from .dirichlet import Dirichlet
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
