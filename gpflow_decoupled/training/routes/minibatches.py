"""The stage of minibatches, for models on inducing points."""

from __future__ import annotations

__all__ = ["plan_on_minibatches"]

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import Likelihood

from ...errors import UnknownOptionError
from ...inducing.variables import count_points
from ...likelihoods import HurdlePoisson, ZeroInflatedPoisson
from ...models import BasisGP
from ...replicas import dataset_of
from ..batches import DEFAULT_BATCH, Batches, Data, make_batches
from ..options import Options
from ..plan import Part, Plan
from ..schedules import MeanSolver
from ..stages.minibatches import Minibatches, bound_of, probe_of
from .inducing_checks import (
    check_roles,
    is_small,
    natural_rule,
    natural_step,
    sites_pay,
    warn_of_sizes,
)
from .replicas import shards_of
from .route import rates_of


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
    points, rates = count_points(model.basis.beta), _are_rates(model.likelihood)
    return natural_step(rows, points, batches.num_data, rates=rates)


def _are_rates(likelihood: Likelihood) -> bool:
    """True if f is the logarithm of a rate whose curvature e^f has no bound, not so for a negative
    binomial.
    """
    own = getattr(likelihood, "likelihood", likelihood)  # of rows with numbers of their own
    exact = type(own) in (HurdlePoisson, ZeroInflatedPoisson)  # negative binomials derive from them
    return exact or getattr(own, "invlink", None) is tf.exp


def _mean_rate(model: BasisGP, solver: MeanSolver) -> float:
    if solver.learning_rate is not None:
        return solver.learning_rate
    if solver.method != "adam":
        return 1.0
    mean = model.basis.kernel_mean
    # Adam moves every coefficient as far: the mean moves by the number of points
    return 0.03 if mean is None else 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))
