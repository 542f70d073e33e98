"""Why a step failed, as an error that names the cause."""

from __future__ import annotations

__all__ = ["explain", "restored"]

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..errors import NumericalError
from ..likelihoods.parameters import extreme_parameters
from ..linalg.cholesky import unsound
from .batches import Batch

RESTORED = " The model holds the last good parameters."
_LIKELY_FIXES = (
    'Likely fixes: a smaller natural_gradient or learning_rate, negative_precision="clip" for'
    " likelihoods that are not log-concave."
)


def explain(
    matrices: Mapping[str, tf.Tensor], batch: Batch, step: int, likelihood: Likelihood | None = None
) -> NumericalError:
    """The error for a step that failed without saying why.

    The causes are looked for in this order: rows of the batch that are not finite, a matrix that
    has no Cholesky factor, and, if there is neither, the posterior precision or a gradient.

    :param matrices: what the step factorises, by name, at the Parameters at which it failed.
    :param batch: X [B, D] and Y [B, P] of the step.
    :param step: its number.
    :param likelihood: whose Parameters are looked at, if it has any.
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
    """The same error, with the number of the step in front and what became of the model at the
    end.
    """
    return NumericalError(f"Step {step}: {error}{RESTORED}", matrix=error.matrix)
