"""An interval for the log evidence, without an N x N factorisation.

Read `interval` first, then `bounds`: exact for a few rows (`observed`), otherwise a lower bound by
neighbours (N4) and an upper bound, certain or estimated. `quadratic` bounds y^T (K + D)^-1 y by
conjugate gradients, `determinant` estimates log|K + D| by Lanczos quadrature.
"""

from .bounds import evidence_interval
from .interval import Evidence, EvidenceSettings
from .observed import Observed
from .quadratic import Nystrom

__all__ = ["Evidence", "EvidenceSettings", "Nystrom", "Observed", "evidence_interval"]
