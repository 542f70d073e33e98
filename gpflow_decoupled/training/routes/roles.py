"""What of a model on inducing points is trainable, against the solvers that are to move it; and more points than rows."""

from __future__ import annotations

__all__ = ["check_roles", "warn_of_sizes"]

import warnings

from ...errors import DataError, UnknownOptionError
from ...inducing.variables import count_points
from ...models import BasisGP
from ...optimizers.natural_gradient.moves import check_mean_solver


def check_roles(model: BasisGP, rho: float | None, mean_solver: str) -> None:
    """Refuse flags of q that disagree with the choice of solvers: natural gradients move all of q(u), or none of it.

    :raises DataError: for such flags, and where nothing is trainable.
    :raises UnknownOptionError: for a solver of the mean that this model, or this choice of `natural_gradient`, rules out.
    """
    basis = model.basis
    flags = [parameter.trainable for parameter in basis.gaussian_parameters()]
    if rho is not None and any(flags) and not all(flags):
        raise DataError(
            "Some Parameters of q(u) are trainable and some are not, and natural gradients move them together: set the same "
            "flag on all of them, or pass natural_gradient=None."
        )
    if not model.trainable_variables:
        raise DataError("No Parameter of the model is trainable; use gpflow.utilities.set_trainable(model, True).")
    if mean_solver == "adam" or basis.kernel_mean is None:
        return
    if rho is None:
        raise UnknownOptionError(
            f'mean_solver={mean_solver!r} needs natural_gradient; give a step size, or use "adam".'
        )
    check_mean_solver(basis, mean_solver)
    if basis.kernel_mean.coefficients.trainable and flags and not any(flags):
        raise DataError(
            f'mean_solver={mean_solver!r} moves q(u) too, which is not trainable here; use mean_solver="adam", or make it so.'
        )


def warn_of_sizes(model: BasisGP, num_data: int) -> None:
    """Warn of more inducing points than observations: that is legitimate, but slower than an exact model."""
    size = count_points(model.basis.beta)
    if size > num_data:
        warnings.warn(
            f"beta has {size} points and the data {num_data} rows: the posterior needs no more points than rows.",
            stacklevel=4,
        )
