"""Likelihoods of values with limits.

Read `censored`, the shared part, and `censored_normal` (Tobit); `log_normal` and `weibull` are of
times to an event.
"""

from .censored import CensoredLikelihood
from .censored_normal import CensoredNormal
from .log_normal import LogNormal
from .weibull import Weibull

__all__ = ["CensoredLikelihood", "CensoredNormal", "LogNormal", "Weibull"]
