"""Several outputs that share latent functions."""

from __future__ import annotations

__all__ = ["COREGIONALISED", "coregionalised"]

import gpflow
import numpy as np
from gpflow.kernels import Kernel, MultioutputKernel

from ..covariances.shared_and_own import SharedAndOwn
from ..errors import DataError

COREGIONALISED = "coregionalised"
"""The word for outputs that are mixtures of a few latent functions."""
_LEAST = 0.05
"""Least deviation, beside the largest, of a latent function at the start, which still can grow."""
_OWN = 0.1
"""Variance of an output's own function at the start, of standardised outputs."""


def coregionalised(
    kernel: Kernel, Y: np.ndarray, rank: int | None = None, *, weights: np.ndarray
) -> SharedAndOwn:
    """A kernel of P outputs f = W g + h, with `rank` shared latents g, and one h for each output.

    W [P, rank] starts at the principal components of Y. Latent kernels are copies of `kernel`; the
    variances of g's are fixed.

    :param Y: standardised outputs [N, P], NaN where they are missing.
    :param rank: shared latents, at most P; by default 1 for two outputs, else 2.
    :param weights: how much each entry counts, [N, P].
    """
    outputs = Y.shape[1]
    if isinstance(kernel, MultioutputKernel):
        raise DataError(
            f"a {type(kernel).__name__} has its own outputs: leave outputs={COREGIONALISED!r} out,"
            " or pass the kernel of one latent function."
        )
    rank = min(2, max(1, outputs - 1)) if rank is None else rank
    if outputs < 2 or rank > outputs:
        raise DataError(
            f"outputs={COREGIONALISED!r} with rank={rank} mixes {rank} latent functions into"
            f" {outputs} output{'s' if outputs > 1 else ''}: pass two outputs or more, and a rank"
            " of at most their number."
        )
    seen = ~np.isnan(Y) * weights
    mean = np.sum(seen * np.nan_to_num(Y), axis=0) / np.sum(seen, axis=0)
    filled = np.where(np.isnan(Y), 0.0, Y - mean) * np.sqrt(weights / np.sum(weights, axis=0))
    _, sizes, components = np.linalg.svd(filled, full_matrices=False)
    sizes = np.maximum(sizes, _LEAST * np.max(sizes, initial=1e-300))
    latents = [gpflow.utilities.deepcopy(kernel) for _ in range(rank + outputs)]
    for place, latent in enumerate(latents):
        if hasattr(latent, "variance"):
            latent.variance.assign(1.0 if place < rank else _OWN)
            gpflow.set_trainable(latent.variance, place >= rank)
    return SharedAndOwn(latents, (components[:rank] * sizes[:rank, None]).T)
