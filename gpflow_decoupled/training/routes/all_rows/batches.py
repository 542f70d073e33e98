"""Minibatches for a step that sees all rows too."""

from __future__ import annotations

__all__ = ["AllRows"]

from ...batches import ArrayBatches, Batch


class AllRows(ArrayBatches):
    """Minibatches of X [N, D], Y [N, P] for a step that sees all rows at the end of a run."""

    @property
    def whole(self) -> Batch:
        """All rows."""
        return self.X, self.Y
