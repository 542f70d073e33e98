"""What of a model on inducing points is trainable, against what is to move it; and more points than rows."""

from __future__ import annotations

__all__ = ["check_kernel_gradients", "check_roles", "warn_of_sizes"]

import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.utilities import parameter_dict

from ...errors import DataError, UnknownOptionError
from ...inducing.variables import count_points
from ...models import BasisGP
from ...optimizers.natural_gradient.moves import check_mean_solver
from ...replicas import Group

_ROWS = 100
"""Of the inputs on which the gradients of a kernel are looked at."""
_SHIFT = 0.1
"""Of an unconstrained Parameter, to find out whether the kernel depends on it."""


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


def check_kernel_gradients(kernel: Kernel, X: tf.Tensor, group: Group) -> None:
    """Refuse trainable Parameters that a kernel depends on and has no gradient of, as where NumPy computes it.

    Covariances and variances are both asked for, since noise kernels have no covariances. A Parameter without a gradient is
    shifted and put back: what changes nothing has no effect, and may stay.

    :param kernel: of one or more latents; what mixes these is not looked at.
    :param X: inputs [N, D], of which the first rows are used.
    :param group: the workers of the run.
    :raises DataError: with the names of the Parameters.
    """
    rows = X[:_ROWS]
    latents = list(kernel.latent_kernels) if isinstance(kernel, MultioutputKernel) else [kernel]
    trainable = {variable.ref() for one in latents for variable in one.trainable_variables}
    found = [
        (f"kernel{path}".splitlines()[0], getattr(parameter, "unconstrained_variable", parameter))
        for path, parameter in parameter_dict(kernel).items()
    ]
    named = [(name, variable) for name, variable in found if variable.ref() in trainable]
    if not named:
        return

    def blocks() -> list[tf.Tensor]:
        return [block for one in latents for block in (one(rows, rows), one(rows, full_cov=False))]

    parts = [group.parts_of(variable) for _, variable in named]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(parts)
        total = tf.add_n([tf.reduce_sum(block) for block in blocks()])
    gradients = tape.gradient(total, parts)
    silent = [pair for pair, copies in zip(named, gradients) if all(copy is None for copy in copies)]
    bad = [name for name, variable in silent if _acts(variable, blocks)]
    if not bad:
        return
    one, fixed = len(bad) == 1, "kernel" if len(bad) == len(named) else bad[0]
    raise DataError(
        f"{', '.join(bad)} {'acts' if one else 'act'} on the kernel's values and {'has' if one else 'have'} no gradient, so "
        "that training would leave the kernel as it is: tf.numpy_function and tf.stop_gradient have none. Call "
        f"gpflow.set_trainable({fixed}, False) and fit the rest, or ConjugateGradients().run(model, (X, Y)) at this kernel."
    )


def _acts(variable: tf.Variable, blocks: Callable[[], list[tf.Tensor]]) -> bool:
    """Whether blocks of a kernel matrix depend on a variable, which has its value again afterwards."""
    before, value = blocks(), tf.convert_to_tensor(variable)
    try:
        variable.assign(value + _SHIFT)
        return not all(np.array_equal(*pair, equal_nan=True) for pair in zip(before, blocks()))
    finally:
        variable.assign(value)
