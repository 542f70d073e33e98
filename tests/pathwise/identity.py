"""Random numbers of an identity matrix, with which draws are the columns of a root of their
covariance.
"""

from __future__ import annotations

import numpy as np


class Identity(np.random.Generator):
    """Standard normal numbers [S, ...] replaced by the next columns of the S x S identity."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))
        self.used = 0

    def standard_normal(self, size):
        count = int(np.prod(size[1:]))
        columns = np.eye(size[0])[:, self.used : self.used + count]
        self.used += count
        return columns.reshape(size)
