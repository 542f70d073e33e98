"""An interval for the log evidence, without an N x N factorisation.

Read `interval` first, then `bounds`: exact for a few rows (`observed`), otherwise a lower bound by
neighbours (N4) and an upper bound, certain or estimated. `quadratic` bounds y^T (K + D)^-1 y by
conjugate gradients, `determinant` estimates log|K + D| by Lanczos quadrature.
"""

from .bounds import EXACT_ROWS, evidence_interval, indefinite
from .interval import Evidence, EvidenceSettings
from .observed import Observed
from .quadratic import Nystrom

__all__ = [
    "EXACT_ROWS", "Evidence", "EvidenceSettings", "Nystrom", "Observed", "evidence_interval",
    "indefinite",
]  # fmt: skip
