"""What one observation contributes: the support of its labels, and the derivatives of its expectation."""

from .support import check_labels, observation_columns

__all__ = ["check_labels", "observation_columns"]
