"""The dual basis.

Read `geometry` first (contract and state), then `basis`. `function_space` serves any kernel by K
[N, N], `weight_space` linear kernels K = A A^T, A [N, p].
"""

from .basis import DualBasis
from .geometry import DualState

__all__ = ["DualBasis", "DualState"]
