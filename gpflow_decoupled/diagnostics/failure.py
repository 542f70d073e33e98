"""Errors of failed steps, with the cause."""

from __future__ import annotations

__all__ = ["explain", "restored"]

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..errors import NumericalError
from ..likelihoods.parameters import extreme_parameters
from ..linalg.cholesky import unsound

RESTORED = " The model holds the last good parameters."
_LIKELY_FIXES = (
    'Likely fixes: a smaller natural_gradient or learning_rate, negative_precision="clip" for'
    " likelihoods that are not log-concave."
)


def explain(
    matrices: Mapping[str, tf.Tensor],
    batch: tuple[tf.Tensor, tf.Tensor],
    step: int,
    likelihood: Likelihood | None = None,
) -> NumericalError:
    """Return the error for a failed step.

    In this order: rows of the batch X [B, D], Y [B, P] that are not finite, a matrix without a
    Cholesky factor, the posterior precision or a gradient.

    :param matrices: the step's factorised matrices, by name.
    """
    for name, array in zip("XY", batch):
        bad = ~np.all(np.isfinite(array.numpy()), axis=1)
        if np.any(bad):
            return NumericalError(
                f"Step {step}: row {int(np.argmax(bad))} of this batch of {name} is not finite;"
                " remove such rows from the dataset." + RESTORED,
                matrix=name,
            )
    if (error := unsound(matrices)) is not None:
        return restored(error, step)
    extreme = "" if likelihood is None else extreme_parameters(likelihood)
    return NumericalError(
        f"Step {step}: the bound, one of its gradients, or the precision of q is not finite or not"
        " positive definite, though the prior's matrices are sound. "
        + (extreme or _LIKELY_FIXES)
        + RESTORED,
        matrix="precision of q",
    )


def restored(error: NumericalError, step: int) -> NumericalError:
    """Add to an error the number of the step, and that the model was restored."""
    return NumericalError(f"Step {step}: {error}{RESTORED}", matrix=error.matrix)
