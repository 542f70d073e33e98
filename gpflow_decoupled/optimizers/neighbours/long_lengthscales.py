"""Lengthscales that must not become too long in a climb."""

# Few rows may call an input irrelevant that is not, and from far away the gradient of its
# lengthscale does not lead back.

from __future__ import annotations

__all__ = ["most_rises", "shorten"]

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.centring import reads_scaled_inputs
from ..log_coordinates import LogCoordinates

_LONGEST = 2.0
"""Largest log lengthscale after the first climb, in units of sqrt(D) standard deviations."""
_LONGER = 2.0
"""Most that the logarithm of a lengthscale grows in a round, whose neighbours belong to its start.
From a start with too little noise the first steps are long: one took a relevant input out of the
kernel."""


def most_rises(kernel: Kernel, coordinates: LogCoordinates) -> np.ndarray:
    """Return the most that each coordinate may grow in a round; infinite but for lengthscales."""
    parts = [one for one in (kernel, *kernel.submodules) if reads_scaled_inputs(one)]
    scales = {id(one.lengthscales.unconstrained_variable) for one in parts}
    each = [_LONGER if id(one) in scales else np.inf for one in coordinates.variables]
    return np.repeat(each, [int(tf.size(one)) for one in coordinates.variables])


def shorten(kernel: Kernel, X: tf.Tensor) -> None:
    """Bound the trainable lengthscales from above, in units of the spread of X [N, D]."""
    # the submodules of a kernel are its parts, without itself
    for one in (kernel, *kernel.submodules):
        if not reads_scaled_inputs(one) or not one.lengthscales.trainable:
            continue
        columns, _ = one.slice(X, None)
        spread = np.std(columns.numpy(), axis=0)
        longest = np.exp(_LONGEST) * np.sqrt(columns.shape[1]) * np.where(spread > 0, spread, 1.0)
        longest = longest if one.ard else np.max(longest)
        one.lengthscales.assign(np.minimum(one.lengthscales.numpy(), longest))
