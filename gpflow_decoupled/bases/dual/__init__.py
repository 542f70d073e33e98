"""The dual basis: q(f) described by multipliers alpha and lambda, two numbers per observation and
latent function.

`basis` has `DualBasis`, the class that models use: it owns the multipliers and leaves the linear
algebra to a geometry. `geometry` says what every geometry computes, and defines the state that it
returns; read it first. `function_space` works with the kernel matrix K [N, N] of any kernel.
`weight_space` serves linear kernels, K = A A^T with A [N, p], and never forms an N x N matrix.
"""

from .basis import DualBasis
from .geometry import DualState

__all__ = ["DualBasis", "DualState"]
