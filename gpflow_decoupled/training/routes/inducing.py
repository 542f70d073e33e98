"""Models on inducing points: q(u) by natural gradients, the mean points by a solver of their own,
the rest by an optimizer.
"""

from __future__ import annotations

__all__ = ["InducingRoute"]

from collections.abc import Callable, Mapping
from dataclasses import replace

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import MultiClass
from gpflow.models import SVGP

from ...bases.parts.data_mean import refuse_white
from ...covariances.blocks import xla_works
from ...errors import ModelError, UnknownOptionError
from ...inducing.variables import count_points
from ...models import BasisGP
from ...optimizers import ConjugateGradients
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.natural_gradient.bound_gradients import as_basis_model
from ...replicas import dataset_of
from ...summaries import short_repr
from ..batches import DEFAULT_BATCH, Batches, make_batches
from ..schedules import Limits
from ..steps import Step
from .all_rows.parts import BY_NAME as LBFGS
from .all_rows.parts import parts_on_all_rows
from .data_mean.parts import BY_NAME, parts_on_data, undo_of
from .inducing_step import TrainingStep
from .on_replicas import check_on_replicas, shards_of
from .roles import (
    check_precision,
    check_roles,
    is_small,
    natural_rule,
    natural_step,
    sites_pay,
    warn_of_sizes,
)
from .route import EVERY_ROUTE, METHODS, OF_OPTIMIZER, Choices, Data, MeanSolver, Model, Route

_OF_MEAN = frozenset({"mean_solver", "Schedule.refresh_every"})
"""What acts on mean points alone."""
_OF_BOUND = ("elbo", "maximum_log_likelihood_objective", "prior_kl")
"""Methods that are the bound of a model, or a part of it."""
_KNOWN = ("gpflow", "gpflow_decoupled")
"""Packages whose classes compute the bound that the steps climb."""
_OF_GAUSSIANS = frozenset({"natural_gradient", "hold", "negative_precision"})
"""What acts on the parts of q that have natural parameters alone."""


class InducingRoute(Route):
    """`BasisGP` with its kin (`ODVGP`, `SparseCVIGP`, ...) and plain `gpflow.models.SVGP`."""

    models = (BasisGP, SVGP)
    options = (
        EVERY_ROUTE
        | OF_OPTIMIZER
        | _OF_MEAN
        | {
            "batch_size",
            "natural_gradient",
            "hold",
            "negative_precision",
            "Schedule.ramp_steps",
            "seed",
        }
        | {"evaluation", "checkpoint", "initialize", "strategy", "precision"}
    )
    reasons = {
        **dict.fromkeys(_OF_MEAN, "This model has no mean points of its own."),
        **dict.fromkeys(
            _OF_GAUSSIANS,
            "The covariance of this model has no natural parameters (that of a DVGP with"
            ' covariance="coupled" has them).',
        ),
    }
    defaults = {"natural_gradient": "auto", "Schedule.ramp_steps": 10, "hold": "auto"}
    holds = ("auto", "sites", "whitened")
    compiles = (True, False, "xla")

    def options_of(self, model: Model) -> frozenset[str]:
        """All but those of what the model lacks: mean points, or natural parameters; a mean on all
        data is not refreshed.
        """
        mean = model.basis.kernel_mean if isinstance(model, BasisGP) else None
        if _has_data_mean(model):
            return self.options - {"Schedule.refresh_every"}
        lacks = _OF_MEAN if mean is None else frozenset()
        return self.options - (lacks if _has_gaussians(model) else lacks | _OF_GAUSSIANS)

    def only_of(self, model: Model) -> Mapping[str, object]:
        """No natural gradients where q has no natural parameters."""
        return {} if _has_gaussians(model) else {"natural_gradient": None}

    def defaults_of(self, model: Model, chosen: Mapping[str, object]) -> Mapping[str, object]:
        """Those of all, but Adam for q(u) too where the likelihood is a robust maximum and no
        option asks for more.
        """
        solver = chosen.get("mean_solver", "adam")
        asked = {"hold", "negative_precision"} & set(chosen) or getattr(
            solver, "method", solver
        ) != "adam"
        robust = isinstance(model.likelihood, MultiClass) and not _has_data_mean(model)
        return (
            {**self.defaults, "natural_gradient": None} if robust and not asked else self.defaults
        )

    def check(self, model: Model, chosen: Mapping[str, object]) -> None:
        """Refuse options that would be ignored, solvers and kernels of other mean points, and what
        replicas cannot do.
        """
        super().check(model, chosen)
        _check_own_bound(model)
        if (strategy := chosen.get("strategy")) is not None:
            check_on_replicas(model, strategy, chosen)
        if chosen.get("compile") == "xla" and not xla_works():
            raise UnknownOptionError(
                'compile="xla": this TensorFlow has no XLA compiler for its device; use'
                " compile=True."
            )
        if chosen.get("precision") == "mixed":
            check_precision(self.view(model))
        solver = chosen.get("mean_solver")
        of_data = _has_data_mean(model)
        if of_data:
            refuse_white(model.kernel)
        if (
            of_data
            and solver is not None
            and not _is_called(BY_NAME, solver)
            and not isinstance(solver, MeanOptimizer)
        ):
            stored = isinstance(solver, MeanSolver) or isinstance(solver, str) and solver in METHODS
            raise UnknownOptionError(
                f"mean_solver={short_repr(solver)}"
                f" {'is for mean points that are stored' if stored else 'is not known'}; "
                f'gamma="data" takes {BY_NAME!r}, which is the default, a ConjugateGradients with'
                " settings, or a "
                "StochasticDualDescent."
            )

    def choose(self, model: Model, chosen: Mapping[str, object], limits: Limits) -> Choices:
        """Those of all, where conjugate gradients and L-BFGS may be chosen by their names."""
        named: dict[str, object] = {}
        if _is_called(BY_NAME, chosen.get("mean_solver")):
            named["mean_solver"] = ConjugateGradients()
        if on_all_rows := _is_called(LBFGS, chosen.get("optimizer")):
            named["optimizer"] = None  # Adam, on minibatches
        return replace(super().choose(model, {**chosen, **named}, limits), on_all_rows=on_all_rows)

    def view(self, model: Model) -> BasisGP:
        """The model, or a `BasisGP` that shares its Parameters with a plain SVGP."""
        return as_basis_model(model)

    def mean_rate(self, model: BasisGP, solver: MeanSolver) -> float:
        """See `MeanSolver`."""
        if solver.method != "adam":
            return 1.0
        mean = model.basis.kernel_mean
        return 0.03 if mean is None else 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))

    def natural_step(self, model: BasisGP, choices: Choices, batches: Batches) -> float | None:
        """That of the caller, or one that suits batch and points."""
        if choices.natural_gradient != "auto":
            return super().natural_step(model, choices, batches)
        rows = batches.batch_size or DEFAULT_BATCH
        return natural_step(rows, count_points(model.basis.beta), batches.num_data)

    def undo(self, model: Model) -> Callable[[], None]:
        """Give a mean on all data its points back."""
        mean = model.basis.data_mean if isinstance(model, BasisGP) else None
        return super().undo(model) if mean is None else undo_of(mean)

    def accept(self, model: BasisGP | SVGP, view: BasisGP, batches: Batches) -> None:
        """Set the number of observations, which scales the bound of a minibatch."""
        view.num_data = model.num_data = batches.num_data

    def parts(self, model: BasisGP, data: Data, choices: Choices) -> tuple[Step, Batches]:
        """A `TrainingStep` on minibatches of the data."""
        if model.basis.data_mean is not None:
            if choices.on_all_rows:
                raise UnknownOptionError(
                    f'optimizer={LBFGS!r}: training with gamma="data" climbs all rows anyway where'
                    " that pays; leave it out."
                )
            return parts_on_data(model, model.basis.data_mean, data, choices, self.parts)
        if choices.on_all_rows:
            return parts_on_all_rows(model, data, replace(choices, on_all_rows=False), self.parts)
        if not isinstance(choices.mean_solver, MeanSolver):
            raise UnknownOptionError(
                f'{type(choices.mean_solver).__name__} needs a mean on all data, gamma="data", and'
                f" the mean points of this {type(model).__name__} are its own: use"
                ' mean_solver="adam" or "newton".'
            )
        solver = choices.mean_solver.method
        check_roles(model, choices.natural_gradient is not None, solver)
        batches = make_batches(
            model, dataset_of(data, choices.group), choices.batch_size, choices.seed
        )
        warn_of_sizes(model, batches.num_data)
        rates = self.rates(model, choices, batches)
        rho, rate = rates.natural_gradient, rates.mean_learning_rate
        natural = (
            None
            if rho is None
            else natural_rule(model, rho, rate, solver, choices.negative_precision)
        )
        mean_optimizer = tf_keras.optimizers.Adam(rate) if solver == "adam" else None
        shards = shards_of(batches, choices.group)
        held = choices.hold == "sites" or (
            choices.hold == "auto" and sites_pay(model.basis, batches)
        )
        compile = "xla" if choices.xla else choices.compile
        low = tf.float32 if choices.precision == "mixed" else None
        together = compile is True and choices.group.strategy is None and is_small(model, batches)
        step = TrainingStep(
            model,
            natural,
            choices.optimizer,
            mean_optimizer,
            compile,
            held,
            low,
            choices.group,
            shards,
            together,
        )
        return step, batches


def _check_own_bound(model: Model) -> None:
    """Refuse a model whose class has a bound of its own, which the steps would not climb; raises
    `ModelError`.
    """
    # GPflow's bound calls predict_f, too, and that of this package does not
    for name in (*_OF_BOUND, *(() if isinstance(model, BasisGP) else ("predict_f",))):
        method = getattr(type(model), name, None)
        if method is not None and method.__module__.split(".")[0] not in _KNOWN:
            raise ModelError(
                f"{type(model).__name__} has {name} of its own, and fit takes steps on the bound of"
                " q(f) and the data, which do not call it: override variational_expectations of a"
                " likelihood or write a basis, or train by GPflow."
            )


def _has_gaussians(model: Model) -> bool:
    """Whether q has parts that natural gradients move; a plain SVGP has."""
    return not isinstance(model, BasisGP) or bool(model.basis.gaussian_parameters())


def _has_data_mean(model: Model) -> bool:
    """Whether the mean is on all training inputs."""
    return isinstance(model, BasisGP) and model.basis.data_mean is not None


def _is_called(name: str, option: object) -> bool:
    return isinstance(option, str) and option == name
