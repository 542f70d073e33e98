"""Predictions of observations from moments of f.

`moments` has their mean and variance, `quantiles` their quantiles, by the `laws` of likelihoods.
"""

from .moments import observation_moments
from .quantiles import observation_quantiles

__all__ = ["observation_moments", "observation_quantiles"]
