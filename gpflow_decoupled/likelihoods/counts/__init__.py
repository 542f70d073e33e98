"""Likelihoods of counts.

Read `binomial`, then `beta_binomial` and `negative_binomial`. `count_family` has Poisson and
negative binomial laws; `zero_inflated` and `hurdle` treat their zeros.
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
