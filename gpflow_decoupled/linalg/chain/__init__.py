"""Kalman filter and smoother.

`posterior` first: it runs `filtering` forwards and `smoothing` backwards, both by `scan`, a
compiled loop with a gradient. `between` predicts new rows.
"""

from .between import Knots, covariances_between, marginals_between, predicted_between
from .posterior import ChainPosterior, chain_posterior

__all__ = [
    "ChainPosterior", "Knots", "chain_posterior", "covariances_between", "marginals_between",
    "predicted_between",
]  # fmt: skip
