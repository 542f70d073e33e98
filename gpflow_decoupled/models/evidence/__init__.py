"""An interval for the log evidence of Gaussian observations, without an N x N factorisation.

Read `interval.py` first, the result, then `bounds.py`: exact for a few rows, otherwise a certified
lower bound by neighbours (N4), and an upper bound, certain or estimated. `quadratic.py` has the
bounds of y^T (K + D)^-1 y by conjugate gradients, `determinant.py` an estimate of log|K + D| by
stochastic Lanczos quadrature. `neighbours/evidence.py` calls them for the models.
"""

from .bounds import Observed, evidence_interval
from .interval import Evidence, EvidenceSettings

__all__ = ["Evidence", "EvidenceSettings", "Observed", "evidence_interval"]
