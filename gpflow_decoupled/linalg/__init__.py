"""Linear algebra: tensors in, tensors out; no GPflow objects, no Parameters."""

from .cholesky import Factor, add_jitter, cholesky, diagnose

__all__ = ["Factor", "add_jitter", "cholesky", "diagnose"]
