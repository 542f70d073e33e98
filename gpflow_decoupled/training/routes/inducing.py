"""Models on inducing points."""

from __future__ import annotations

__all__ = ["InducingRoute"]

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import MultiClass
from gpflow.models import SVGP

from ...errors import UnknownOptionError
from ...inducing.variables import count_points
from ...models import BasisGP
from ...optimizers import ConjugateGradients
from ...optimizers.natural_gradient.bound_gradients import as_basis_model
from ...replicas import dataset_of
from ..batches import DEFAULT_BATCH, Batches, Data, make_batches
from ..options import NAMES, Options
from ..plan import Part, Plan
from ..schedules import MeanSolver
from ..stages.minibatches import Minibatches, bound_of, probe_of
from .checks import (
    check_mean_on_data,
    check_own_bound,
    check_precision,
    check_roles,
    check_xla,
    is_small,
    natural_rule,
    natural_step,
    sites_pay,
    warn_of_sizes,
)
from .lbfgs import BY_NAME as LBFGS
from .lbfgs import plan_on_all_rows
from .mean_on_data import BY_NAME, plan_on_data, undo_of
from .replicas import check_on_replicas, shards_of
from .route import Route, rates_of

_OF_MEAN = frozenset({"mean_solver", "Schedule.refresh_every"})
"""The options that act on mean points alone."""
_OF_GAUSSIANS = frozenset({"natural_gradient", "hold", "negative_precision"})
"""The options that act only on parts of q that have natural parameters."""
_NO_NATURAL = (
    "The covariance of this model has no natural parameters (a DVGP with"
    ' covariance="coupled" has them).'
)


class InducingRoute(Route):
    """`BasisGP` with its kin (`ODVGP`, `SparseCVIGP`, ...) and plain `gpflow.models.SVGP`."""

    name = "inducing"
    models = ("BasisGP", "SVGP")
    takes = NAMES
    reasons = {
        **dict.fromkeys(_OF_MEAN, "This model has no mean points of its own."),
        **dict.fromkeys(_OF_GAUSSIANS, _NO_NATURAL),
    }
    defaults = {"natural_gradient": "auto", "ramp_steps": 10, "hold": "auto"}
    holds = ("auto", "sites", "whitened")
    compiles = (True, False, "xla")

    def taken_by(self, model: Any) -> frozenset[str]:
        if _data_mean_of(model) is not None:
            return self.takes - {"Schedule.refresh_every"}
        stored = isinstance(model, BasisGP) and model.basis.kernel_mean is not None
        lacks = frozenset() if stored else _OF_MEAN
        return self.takes - (lacks if _has_gaussians(model) else lacks | _OF_GAUSSIANS)

    def only_of(self, model: Any) -> Mapping[str, object]:
        return {} if _has_gaussians(model) else {"natural_gradient": None}

    def defaults_of(self, model: Any, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Choose Adam for q(u) too if the likelihood is a robust maximum and no option asks
        otherwise.
        """
        solver = asked.get("mean_solver", "adam")
        natural = {"hold", "negative_precision"} & set(asked) or (
            getattr(solver, "method", solver) != "adam"
        )
        robust = isinstance(model.likelihood, MultiClass)
        if robust and not natural and _data_mean_of(model) is None:
            return {**self.defaults, "natural_gradient": None}
        return self.defaults

    def check(self, model: Any, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        check_own_bound(model)
        if (strategy := asked.get("strategy")) is not None:
            check_on_replicas(model, strategy, asked)
        if asked.get("compile") == "xla":
            check_xla()
        if asked.get("precision") == "mixed":
            check_precision(self.view(model))
        if _data_mean_of(model) is not None:
            check_mean_on_data(model, asked.get("mean_solver"), BY_NAME)

    def options(self, model: Any, asked: Mapping[str, Any]) -> Options:
        named: dict[str, Any] = dict(asked)
        if _is_called(BY_NAME, asked.get("mean_solver")):
            named["mean_solver"] = ConjugateGradients()
        if _is_called(LBFGS, asked.get("optimizer")):
            named |= {"optimizer": None, "on_all_rows": True}  # Adam, on minibatches
        return super().options(model, named)

    def view(self, model: BasisGP | SVGP) -> BasisGP:
        return as_basis_model(model)

    def undo(self, model: Any) -> Callable[[], None]:
        mean = _data_mean_of(model)
        return super().undo(model) if mean is None else undo_of(mean)

    def accept(self, model: BasisGP | SVGP, view: BasisGP, batches: Batches) -> None:
        view.num_data = model.num_data = batches.num_data

    def plan(self, model: BasisGP, data: Data, options: Options) -> Plan:
        mean = model.basis.data_mean
        if mean is not None:
            if options.on_all_rows:
                raise UnknownOptionError(
                    f'optimizer={LBFGS!r}: training with gamma="data" climbs all rows anyway where'
                    " that pays; leave it out."
                )
            return plan_on_data(model, mean, data, options, _on_minibatches)
        if options.on_all_rows:
            return plan_on_all_rows(model, data, options, _on_minibatches)
        return _on_minibatches(model, data, options)


def _on_minibatches(model: BasisGP, data: Data, options: Options) -> Plan:
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
    return natural_step(rows, count_points(model.basis.beta), batches.num_data)


def _mean_rate(model: BasisGP, solver: MeanSolver) -> float:
    if solver.learning_rate is not None:
        return solver.learning_rate
    if solver.method != "adam":
        return 1.0
    mean = model.basis.kernel_mean
    # Adam moves every coefficient as far: the mean moves by the number of points
    return 0.03 if mean is None else 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))


def _data_mean_of(model: BasisGP | SVGP) -> Any:
    return model.basis.data_mean if isinstance(model, BasisGP) else None


def _has_gaussians(model: BasisGP | SVGP) -> bool:
    return not isinstance(model, BasisGP) or bool(model.basis.gaussian_parameters())


def _is_called(name: str, option: object) -> bool:
    return isinstance(option, str) and option == name
