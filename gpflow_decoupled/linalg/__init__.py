"""Linear algebra: tensors in, tensors out; no GPflow objects, no Parameters."""
from .cholesky import Factor, add_jitter, cholesky, diagnose, flipped_cholesky

__all__ = ["Factor", "add_jitter", "cholesky", "diagnose", "flipped_cholesky"]
