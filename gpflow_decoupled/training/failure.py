"""What went wrong in a step, said in one sentence that names it."""

from __future__ import annotations

__all__ = ["explain", "restored"]

import numpy as np

from ..errors import NumericalError
from ..linalg.cholesky import diagnose
from ..models import BasisGP

RESTORED = " The model holds the last good parameters."


def explain(model: BasisGP, batch: tuple, step: int) -> NumericalError:
    """The error for a failed step, found at the parameters at which it failed."""
    for name, array in zip("XY", batch):
        bad = ~np.all(np.isfinite(array.numpy()), axis=1)
        if np.any(bad):
            return NumericalError(
                f"Step {step}: row {int(np.argmax(bad))} of this batch of {name} is not finite; remove such rows "
                "from the dataset." + RESTORED,
                matrix=name,
            )
    for name, matrix in model.basis.matrices(model.kernel).items():
        values = matrix.numpy()
        if not np.all(np.isfinite(values)) or np.min(np.linalg.eigvalsh(values)) <= 0:
            return restored(diagnose(name, values), step)
    return NumericalError(
        f"Step {step}: the bound, one of its gradients, or the precision of q is not finite or not positive definite, though "
        "the prior's matrices are sound. Likely fixes: a smaller natural_gradient or learning_rate, "
        'negative_precision="clip" for likelihoods that are not log-concave.' + RESTORED,
        matrix="precision of q",
    )


def restored(error: NumericalError, step: int) -> NumericalError:
    """The same error, with the step at which it came up and what became of the model."""
    return NumericalError(f"Step {step}: {error}{RESTORED}", matrix=error.matrix)
