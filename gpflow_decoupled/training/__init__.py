"""Training: `fit`, and the pieces it is made of."""

from .evaluation import held_out_metrics
from .fit import fit
from .progress import TensorBoard
from .result import FitResult

__all__ = ["FitResult", "TensorBoard", "fit", "held_out_metrics"]
