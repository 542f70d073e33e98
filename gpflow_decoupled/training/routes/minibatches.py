"""The stage of minibatches, for models on inducing points."""

from __future__ import annotations

__all__ = [
    "BY_NAME", "check_kernel_gradients", "check_mean_on_data", "check_own_bound",
    "check_precision", "check_roles", "check_xla", "is_small", "natural_rule", "natural_step",
    "plan_on_all_rows", "plan_on_minibatches", "sites_pay", "warn_of_sizes",
]  # fmt: skip

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.keras import tf_keras
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict

from ...bases import InducingBasis
from ...bases.optimum import refuse_white
from ...covariances.blocks import xla_works
from ...errors import DataError, ModelError, UnknownOptionError
from ...inducing.variables import count_points, point_values
from ...inputs import stays_on_disk
from ...likelihoods.facts import draws_expectations, is_rate
from ...models import BasisGP, FactorGraph, FullGP
from ...optimizers import NaturalGradient
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.gaussian_optimum import bound_at_optimum, regression
from ...optimizers.natural_gradient import check_mean_solver
from ...replicas import Group, dataset_of
from ...summaries import short_repr
from ...user_warnings import warn_user
from ..batches import DEFAULT_BATCH, ArrayBatches, Batches, Data, make_batches
from ..options import Options
from ..schedules import METHODS, MeanSolver
from ..stages.climbs import MOST_ENTRIES, CollapsedClimb, all_points
from ..stages.minibatches import Minibatches, bound_of, probe_of
from ..turns import Part, Plan
from .route import rates_of, shards_of

# ---
# Checks of models on inducing points.


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
    draws = model.expectations is not None or draws_expectations(model.likelihood)
    if draws or not isinstance(batches, ArrayBatches):
        return False
    points = sum(size for size in model.basis.sizes.values() if isinstance(size, int))
    rows, columns = batches.batch_size, batches.X.shape[1] + batches.Y.shape[1]
    operations = model.basis.num_latent_gps * points**2 * (points + rows)
    return operations <= _SMALL and rows * columns <= _NUMBERS


# ---


def plan_on_minibatches(model: BasisGP, data: Data, options: Options) -> Plan:
    """Return the plan: one stage, which `optimizer="lbfgs"` and a mean on all data go on from."""
    solver, group, mean = options.mean_solver, options.group, model.basis.kernel_mean
    if not isinstance(solver, MeanSolver):
        raise UnknownOptionError(
            f'{type(solver).__name__} needs a mean on all data, gamma="data", which'
            f" this {type(model).__name__} does not have: use"
            ' mean_solver="adam" or "newton".'
        )
    check_roles(model, options.natural_gradient is not None, solver.method)
    batches = make_batches(
        model, dataset_of(data, group), options.batch_size, options.seed, group.workers
    )
    warn_of_sizes(model, batches.num_data)
    rho, rate = _natural_step(model, options, batches), _mean_rate(model, solver)
    natural, policy = None, options.negative_precision
    if rho is not None:
        natural = natural_rule(model, rho, rate, solver.method, policy)
    # XLA and replicas compile one step a call
    compiled = options.compile is True and group.strategy is None
    stage = Minibatches(
        model,
        natural,
        options.optimizer,
        tf_keras.optimizers.Adam(rate) if solver.method == "adam" else None,
        compile=options.compile,
        hold_sites=options.hold == "sites"
        or (options.hold == "auto" and sites_pay(model.basis, batches)),
        low=tf.float32 if options.precision == "mixed" else None,
        group=group,
        shards=None if group.strategy is None else shards_of(batches, group),
        together=compiled and is_small(model, batches),
    )
    return Plan(
        parts=[Part(stage)],
        batches=batches,
        rates=rates_of(options, rho, rate),
        bound=bound_of(model, group),
        matrices=lambda: model.basis.matrices(model.kernel),
        whole=batches.whole,
        probe=probe_of(model),
        sampled_rows=None if mean is None else mean.subsample,
    )


def _natural_step(model: BasisGP, options: Options, batches: Batches) -> float | None:
    rho = options.natural_gradient
    if rho != "auto":
        return None if rho is None else float(rho)
    rows = batches.batch_size or DEFAULT_BATCH
    points, rates = count_points(model.basis.beta), is_rate(model.likelihood)
    return natural_step(rows, points, batches.num_data, rates=rates)


def _mean_rate(model: BasisGP, solver: MeanSolver) -> float:
    if solver.learning_rate is not None:
        return solver.learning_rate
    if solver.method != "adam":
        return 1.0
    mean = model.basis.kernel_mean
    # Adam moves every coefficient as far: the mean moves by the number of points
    return 0.03 if mean is None else 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))


# ---
# The stages of `optimizer="lbfgs"`.


BY_NAME = "lbfgs"
"""The `optimizer` that stands for L-BFGS on all rows."""
_BEFORE_CLIMB = 0.25
"""The share of the run before the climb, in which minibatches find the neighbourhood of a good
kernel.
"""
_LEAST_EVALUATIONS = 30
"""Of a climb in a run whose limit is a number of steps: with fewer, L-BFGS gains less than the
steps on minibatches that it stands for.
"""


def plan_on_all_rows(model: BasisGP, data: Data, options: Options) -> Plan:
    """Return the plan: minibatches, then L-BFGS on all rows."""
    own = _check(model, data, options)
    coupled = plan_on_minibatches(model, data, options)
    batches = cast(ArrayBatches, coupled.batches)
    _check_closed_form(model, batches)
    if not CollapsedClimb.fits(model, batches.num_data):
        raise DataError(
            f"optimizer={BY_NAME!r} keeps about seven matrices of {all_points(model):,} points by"
            f" {batches.num_data:,} rows, and takes up to {MOST_ENTRIES:,.0f} entries in each: use"
            " Adam, fewer points or fewer rows."
        )
    moved = [variable for variable in model.trainable_variables if variable.ref() not in own]
    until, evaluations, whole = _BEFORE_CLIMB, 10**6, (batches.X, batches.Y)
    if options.steps is not None:  # stands for the rows that these steps would have seen
        passes = (1.0 - _BEFORE_CLIMB) * options.steps * batches.batch_size / batches.num_data
        evaluations = max(_LEAST_EVALUATIONS, int(passes))
        until = min(until, 1.0 - 1.0 / options.steps)  # one step is left for the climb
    climb = CollapsedClimb(moved, model, whole, evaluations, bool(options.compile))

    def bound(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        exact = coupled.bound(X, Y)  # None where the norm of the mean is sampled
        return climb.bound(X, Y) if exact is None and climb.done else exact

    return replace(
        coupled,
        parts=[Part(coupled.parts[0].stage, until), Part(climb)],
        whole=whole,
        bound=bound,
        closing=climb.closing,
    )


def _check(model: BasisGP, data: Data, options: Options) -> set[object]:
    if options.group.strategy is not None:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} works on one device alone; leave `strategy` out, or use Adam."
        )
    if not isinstance(data, (tuple, list)) or any(map(stays_on_disk, data)):
        raise DataError(
            f"optimizer={BY_NAME!r} needs all rows in memory: pass arrays (X, Y), or use Adam."
        )
    mean = model.basis.kernel_mean
    own = [*model.basis.gaussian_parameters(), *([] if mean is None else [mean.coefficients])]
    if not all(parameter.trainable for parameter in own):
        raise DataError(
            f"optimizer={BY_NAME!r} sets q in closed form, and some of its Parameters are not"
            " trainable: set their flags by gpflow.set_trainable(model.basis, True), or use Adam."
        )
    return {parameter.unconstrained_variable.ref() for parameter in own}


def _check_closed_form(model: BasisGP, batches: ArrayBatches) -> None:
    if model.expectations is not None:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs a bound in closed form, and model.expectations are"
            " sampled; set them to None."
        )
    try:
        bound_at_optimum(model, regression(model, (batches.X[:1], batches.Y[:1])))
    except ModelError as error:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs the bound at the best q(u). {error}"
        ) from error
