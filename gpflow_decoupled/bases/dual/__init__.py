"""The dual basis: q(f) by multipliers alpha and lambda per observation and latent.

`basis` has `DualBasis`, which owns the multipliers and leaves the linear algebra to a geometry.
Read `geometry` first (its contract and state); `function_space` serves any kernel by its matrix K
[N, N], `weight_space` linear kernels K = A A^T, A [N, p], without N x N matrices.
"""

from .basis import DualBasis
from .geometry import DualState

__all__ = ["DualBasis", "DualState"]
