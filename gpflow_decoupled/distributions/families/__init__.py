"""Exponential families: natural and expectation parameters, Fisher solves, differentiable samples."""

from .base import Belief, Family, Natural
from .beta import Beta
from .categorical import Categorical
from .concentrations import (
    dirichlet_fisher_solve,
    dirichlet_from_log_mean,
    dirichlet_log_mean,
    dirichlet_log_partition,
)
from .dirichlet import Dirichlet
from .gamma import Gamma
from .gaussian import Gaussian
from .inverse_gamma import InverseGamma

__all__ = [
    "Belief", "Beta", "Categorical", "Dirichlet", "Family", "Gamma", "Gaussian", "InverseGamma", "Natural",
    "dirichlet_fisher_solve", "dirichlet_from_log_mean", "dirichlet_log_mean", "dirichlet_log_partition",
]  # fmt: skip
