"""Checks of models on inducing points."""

from __future__ import annotations

__all__ = [
    "check_kernel_gradients", "check_mean_on_data", "check_own_bound", "check_precision",
    "check_roles", "check_xla", "is_small", "natural_rule", "natural_step", "sites_pay",
    "warn_of_sizes",
]  # fmt: skip

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import MonteCarloLikelihood
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict

from ...bases import InducingBasis
from ...bases.parts.data_mean import refuse_white
from ...covariances.blocks import xla_works
from ...errors import DataError, ModelError, UnknownOptionError
from ...inducing.variables import count_points, point_values
from ...models import BasisGP, FactorGraph, FullGP
from ...optimizers import NaturalGradient
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.natural_gradient.moves import check_mean_solver
from ...replicas import Group
from ...summaries import short_repr
from ...user_warnings import warn_user
from ..batches import DEFAULT_BATCH, ArrayBatches, Batches
from ..schedules import METHODS, MeanSolver

_OF_BOUND = ("elbo", "maximum_log_likelihood_objective", "prior_kl")
"""Methods that are the bound of a model, or a part of it."""
_KNOWN = ("gpflow", "gpflow_decoupled")
"""Packages whose classes compute the bound that the steps climb."""
_ROWS = 100
"""Inputs at which the gradients of a kernel are checked."""
_ROWS_PER_SITE = 2
"""Least rows per site for which fixed sites gain more per second than they cost; measured with 300
to 1,000 points, 1 to 26 latents.
"""
_LARGEST_STEP, _AVERAGED_ROWS, _ROWS_PER_POINT = 0.5, 3000, 10
"""Of q on minibatches; measured with 90 to 1,000 points and batches of 256 and 1,024 rows."""
_LARGEST_STEP_OF_RATES = 0.2
"""Of q where f is a log rate: the curvature e^f of large counts has no bound, and steps of 1/2 went
further off with each batch on 5,000 counts of 190 on average. After 400 steps on 6,000 counts of
3 on average the held-out log density was -3.97 with 0.5, and -3.11, -3.15, -3.16 with 0.2, 0.1,
0.05.
"""
_SMALL = 1e7
"""Operations of a step, up to which taking several in one call saves a tenth of its time or
more.
"""
_NUMBERS = 1e5
"""Numbers in a batch up to which the batches of several steps are gathered at once."""
_SHIFT = 0.1
"""Of an unconstrained Parameter, to find out whether the kernel depends on it."""


def check_roles(model: BasisGP, natural: bool, mean_solver: str) -> None:
    """Require that natural gradients move all of q(u), or none of it."""
    basis = model.basis
    flags = [parameter.trainable for parameter in basis.gaussian_parameters()]
    if natural and any(flags) and not all(flags):
        raise DataError(
            "Some Parameters of q(u) are trainable and some are not, and natural gradients move"
            " them together: set the same flag on all of them, or pass natural_gradient=None."
        )
    if not model.trainable_variables:
        raise DataError(
            "No Parameter of the model is trainable; use gpflow.utilities.set_trainable(model,"
            " True)."
        )
    if mean_solver == "adam" or basis.kernel_mean is None:
        return
    if not natural:
        raise UnknownOptionError(
            f'mean_solver={mean_solver!r} needs natural_gradient; give a step size, or use "adam".'
        )
    check_mean_solver(basis, mean_solver)
    if basis.kernel_mean.coefficients.trainable and flags and not any(flags):
        raise DataError(
            f"mean_solver={mean_solver!r} moves q(u) too, which is not trainable here; use"
            ' mean_solver="adam", or make it so.'
        )


def check_mean_on_data(model: BasisGP, solver: object, name: str) -> None:
    """Refuse kernels and solvers that do not suit a mean on all data."""
    refuse_white(model.kernel)
    named = isinstance(solver, str) and solver == name
    if solver is None or named or isinstance(solver, MeanOptimizer):
        return
    stored = isinstance(solver, MeanSolver) or (isinstance(solver, str) and solver in METHODS)
    raise UnknownOptionError(
        f"mean_solver={short_repr(solver)}"
        f" {'is for mean points that are stored' if stored else 'is not known'}; "
        f'gamma="data" takes {name!r}, which is the default, a ConjugateGradients with settings,'
        " or a StochasticDualDescent."
    )


def check_own_bound(model: BasisGP | SVGP) -> None:
    """Raise `ModelError` for a class that overrides the bound, which steps would not climb."""
    # GPflow's bound calls predict_f, too; this package's does not
    for name in (*_OF_BOUND, *(() if isinstance(model, BasisGP) else ("predict_f",))):
        method = getattr(type(model), name, None)
        if method is not None and method.__module__.split(".")[0] not in _KNOWN:
            raise ModelError(
                f"{type(model).__name__} has {name} of its own, and fit takes steps on the bound of"
                " q(f) and the data, which do not call it: override variational_expectations of a"
                " likelihood or write a basis, or train by GPflow."
            )


def check_xla() -> None:
    """Raise `UnknownOptionError` for `compile="xla"` without a compiler."""
    if not xla_works():
        raise UnknownOptionError(
            'compile="xla": this TensorFlow has no XLA compiler for its device; use compile=True.'
        )


def check_precision(model: BasisGP) -> None:
    """Raise `UnknownOptionError` for mixed precision where the basis has none."""
    if not model.basis.mixes_precision:
        raise UnknownOptionError(
            f'precision="mixed": {type(model.basis).__name__} computes in one precision alone.'
            " Leave the option out, or choose a CoupledBasis, an OrthogonalBasis or a HybridBasis."
        )


def _is_gpflows(kernel: Kernel) -> bool:
    return type(kernel).__module__.startswith("gpflow.")


def warn_of_sizes(model: BasisGP, num_data: int) -> None:
    """Warn of more inducing points than observations, slower than an exact model."""
    size = count_points(model.basis.beta)
    if size > num_data:
        warn_user(
            f"beta has {size} points and the data {num_data} rows: the posterior needs no more"
            " points than rows."
        )


def check_kernel_gradients(model: BasisGP | FullGP | FactorGraph, group: Group) -> None:
    """Check that a kernel has gradients in its trainable Parameters; NumPy code has none."""
    # Tries covariances and variances, since noise kernels have no covariances, at the model's data
    # or inducing points. A Parameter without a gradient is shifted and put back: one without effect
    # may stay.
    inputs = _inputs_of(model)
    if isinstance(model, FactorGraph) or inputs is None:
        return
    kernel, rows = model.kernel, tf.convert_to_tensor(inputs)[:_ROWS]
    if all(_is_gpflows(part) for part in (kernel, *kernel.submodules) if isinstance(part, Kernel)):
        return  # to look takes as long as a third of a fit to a hundred rows
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
    silent = [
        pair for pair, copies in zip(named, gradients) if all(copy is None for copy in copies)
    ]
    bad = [name for name, variable in silent if _acts(variable, blocks)]
    if not bad:
        return
    alone = (
        ", or ConjugateGradients().run(model, (X, Y)) at this kernel"
        if isinstance(model, BasisGP) and model.basis.data_mean is not None
        else ""
    )
    one, fixed = len(bad) == 1, "kernel" if len(bad) == len(named) else bad[0]
    raise DataError(
        f"{', '.join(bad)} {'acts' if one else 'act'} on the kernel's values and"
        f" {'has' if one else 'have'} no gradient, so that training would leave the kernel as it"
        f" is: tf.numpy_function and tf.stop_gradient have none. Call gpflow.set_trainable({fixed},"
        f" False) and fit the rest{alone}."
    )


def _inputs_of(model: BasisGP | FullGP | FactorGraph) -> TensorType | None:
    if isinstance(model, FullGP):
        return model.data[0]
    points = point_values(model.basis.beta) if isinstance(model, BasisGP) else []
    return points[0] if points else None


def _acts(variable: tf.Variable, blocks: Callable[[], list[tf.Tensor]]) -> bool:
    before, value = blocks(), tf.convert_to_tensor(variable)
    try:
        variable.assign(value + _SHIFT)
        return not all(np.array_equal(*pair, equal_nan=True) for pair in zip(before, blocks()))
    finally:
        variable.assign(value)


def natural_rule(
    model: BasisGP, rho: float, mean_rate: float, solver: str, negative_precision: str
) -> NaturalGradient:
    """The rule for q(u), and for mean coefficients; step sizes are variables."""
    mean = model.basis.kernel_mean
    moves_mean = solver != "adam" and mean is not None and mean.coefficients.trainable
    return NaturalGradient(
        tf.Variable(rho, dtype=tf.float64, trainable=False),
        mean=solver if moves_mean else None,
        mean_step=tf.Variable(mean_rate, dtype=tf.float64, trainable=False),
        negative_precision=negative_precision,
    )


def natural_step(rows: int, points: int, num_data: int, *, rates: bool = False) -> float:
    """Return the step size rho of q(u): 1/2, or less on small minibatches.

    :param rates: whether f is the logarithm of a rate, as of Poisson counts.
    """
    # Steps of rho average q over (2 - rho) / rho batches: at least 3,000 rows, or 10 per point if
    # more, and at most 3 N.
    averaged = min(max(_AVERAGED_ROWS, _ROWS_PER_POINT * points), 3 * num_data)
    largest = _LARGEST_STEP_OF_RATES if rates else _LARGEST_STEP
    return min(largest, 2.0 * rows / (rows + averaged))


def sites_pay(basis: InducingBasis, batches: Batches) -> bool:
    """True for all data, or 2 L M rows, where sites repay their L M^3 operations."""
    # Gradients at fixed sites are noisier with fewer rows per point.
    roots = [
        parameter.shape for parameter in basis.gaussian_parameters() if len(parameter.shape) == 3
    ]
    sites = max((int(L) * int(M) for L, M, _ in roots), default=0)
    return batches.whole is not None or _ROWS_PER_SITE * sites <= (
        batches.batch_size or DEFAULT_BATCH
    )


def is_small(model: BasisGP, batches: Batches) -> bool:
    """True if several steps fit one call: L M^2 (M + B) below 10 million, on arrays."""
    # Not for models that sample f: a failed call would change their random state.
    draws = model.expectations is not None or isinstance(model.likelihood, MonteCarloLikelihood)
    if draws or not isinstance(batches, ArrayBatches):
        return False
    points = sum(size for size in model.basis.sizes.values() if isinstance(size, int))
    rows, columns = batches.batch_size, batches.X.shape[1] + batches.Y.shape[1]
    operations = model.basis.num_latent_gps * points**2 * (points + rows)
    return operations <= _SMALL and rows * columns <= _NUMBERS
