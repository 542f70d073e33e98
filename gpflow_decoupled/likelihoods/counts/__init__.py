"""Likelihoods of counts: successes in trials, and counts with more or fewer zeros than Poisson.

Read `binomial`, then `beta_binomial` and `negative_binomial`. `count_family` has the two laws of
unlimited counts, Poisson and negative binomial; `zero_inflated` and `hurdle` treat their zeros.
"""

from .beta_binomial import BetaBinomial
from .binomial import Binomial
from .hurdle import HurdleNegativeBinomial, HurdlePoisson
from .negative_binomial import NegativeBinomial
from .zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson

__all__ = [
    "BetaBinomial", "Binomial", "HurdleNegativeBinomial", "HurdlePoisson", "NegativeBinomial",
    "ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson",
]  # fmt: skip
