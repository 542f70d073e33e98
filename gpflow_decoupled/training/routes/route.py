"""The contract of a route."""

from __future__ import annotations

__all__ = [
    "ALL_ROWS", "Model", "Route", "check_on_replicas", "check_workers", "plan_on_own_data",
    "rates_of", "refuse_data", "shards_of",
]  # fmt: skip

import abc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, TypeAlias

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.models import GPModel

from ...errors import DataError, UnknownOptionError, check_option
from ...models import BasisGP, FactorGraph, FullGP
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...replicas import (
    Group,
    apply_trainable,
    check_strategy,
    named_variables,
    parameter_digests,
    refuse_elsewhere,
)
from ..batches import ArrayBatches, Batches, Data, DatasetBatches, DiskBatches
from ..evaluation import refuse_other_run, run_settings
from ..keras import DEFAULT_RATE, Optimizer, check_optimizer, refuse_clipping, state_of
from ..options import ROWS, Options
from ..schedules import MeanSolver, Rates
from ..stages.stage import Stage
from ..turns import Part, Plan

Model: TypeAlias = GPModel | FactorGraph

ALL_ROWS: Mapping[str, object] = {"batch_size": None}
"""For `Route.only` of models that own their data: every step sees all of them."""

_ON_REPLICAS = (
    "Models on inducing points, as ODVGP and SparseCVIGP, and NNGP are what several replicas train."
)


class Route(abc.ABC):
    """How `fit` trains one family of models: its options, and the stages of a run.

    :cvar name: value of the models' attribute `route`.
    :cvar models: classes of the family, for messages.
    :cvar takes: names of its options; a field of an object is written `Schedule.anneal`.
    :cvar only: options with a single possible value.
    :cvar defaults: values that differ from the table, by field of `Options`.
    """

    name: ClassVar[str]
    models: ClassVar[tuple[str, ...]]
    takes: ClassVar[frozenset[str]]
    only: ClassVar[Mapping[str, object]] = {}
    reasons: ClassVar[Mapping[str, str]] = {}
    defaults: ClassVar[Mapping[str, object]] = {}
    holds: ClassVar[tuple[str, ...]] = ()
    compiles: ClassVar[tuple[bool | str, ...]] = (True, False)

    @abc.abstractmethod
    def plan(self, model: Any, data: Data, options: Options) -> Plan:
        """Return the stages of a run; `undo` must revert all changes made here.

        :raises DataError: for unusable data, and if nothing is trainable.
        """

    def view(self, model: Any) -> BasisGP | FullGP | FactorGraph:
        """Return the model, or one of this package that shares its Parameters.

        :raises ModelError: for a model of the family that cannot be trained.
        """
        return model

    def undo(self, model: Any) -> Callable[[], None]:
        """Return a callback that restores the model if the run is refused after `plan`."""
        return lambda: None

    def accept(self, model: Any, view: Any, batches: Batches) -> None:
        """Tell the model about the data; the first change that a run makes."""
        return None

    def taken_by(self, model: Any) -> frozenset[str]:
        """Return the options that this model uses, at most `takes`."""
        return self.takes

    def only_of(self, model: Any) -> Mapping[str, object]:
        """Return `only` for this model."""
        return self.only

    def defaults_of(self, model: Any, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Return `defaults`, or others that suit this model and the options `asked` for."""
        return self.defaults

    def check(self, model: Any, asked: Mapping[str, Any]) -> None:
        """Refuse options without effect.

        :raises DataError: for a strategy whose replicas do not step together.
        """
        check_strategy(asked.get("strategy"), model.variables)
        # before anything asks which Parameters are trainable
        apply_trainable(model.variables)
        compiled = asked.get("compile", True)
        shown = compiled if isinstance(compiled, (bool, str)) else repr(compiled)
        check_option("compile", shown, self.compiles)
        taken, only = self.taken_by(model), self.only_of(model)
        bad = {
            name: value
            for name, value in _named(asked).items()
            if name not in taken and not (name in only and value is only[name])
        }
        if not bad:
            return
        known = {"strategy": _ON_REPLICAS, **self.reasons}
        reasons = "".join(f" {known[name]}" for name in bad if name in known)
        names = sorted(taken, key=str.lower) + [_shown(*item) for item in only.items()]
        raise UnknownOptionError(
            f"fit does not use {', '.join(_shown(*item) for item in bad.items())} for"
            f" {type(model).__name__}.{reasons} It takes {', '.join(names)}."
        )

    def options(self, model: Any, asked: Mapping[str, Any]) -> Options:
        """Return the caller's options, completed by defaults."""
        table = {name: row.default for name, row in ROWS.items()}
        values = table | dict(self.defaults_of(model, asked)) | dict(asked)
        for name, row in ROWS.items():
            if row.check is not None:
                row.check(values[name])
        if self.holds:
            check_option("hold", values["hold"], self.holds)
        values["group"] = group = Group(values["strategy"])
        values["optimizer"] = optimizer = _optimizer(values, group)
        if values["learning_rate"] is None:
            values["learning_rate"] = float(tf.convert_to_tensor(optimizer.learning_rate))
        if not isinstance(values["mean_solver"], (MeanSolver, MeanOptimizer)):
            values["mean_solver"] = MeanSolver(values["mean_solver"])
        return Options(**values)

    @contextmanager
    def accepting(self, model: Any) -> Iterator[Callable[[Any, Batches], None]]:
        """Yield a function that calls `accept` with the view and the batches; if it is not called,
        restore the model.
        """
        with ExitStack() as refusal:
            refusal.callback(self.undo(model))

            def accept(view: Any, batches: Batches) -> None:
                refusal.pop_all()  # failures from now on are no refusals
                self.accept(model, view, batches)

            yield accept


def rates_of(options: Options, natural_gradient: object, mean_rate: float = 1.0) -> Rates:
    """Return the step sizes before ramp and annealing."""
    rho = None if natural_gradient is None else float(natural_gradient)  # type: ignore[arg-type]
    return Rates(rho, options.learning_rate, options.ramp_steps, options.anneal, mean_rate)


def plan_on_own_data(
    model: FullGP, stage: Stage, options: Options, natural_gradient: object
) -> Plan:
    """Return the plan of one stage on all rows of a model that owns its data."""
    batches = ArrayBatches(*model.data, None, options.seed)
    return Plan(
        parts=[Part(stage)],
        batches=batches,
        rates=rates_of(options, natural_gradient),
        bound=lambda X, Y: model.elbo(),
        matrices=lambda: model.basis.matrices(model.kernel),
        whole=batches.whole,
    )


def refuse_data(model: Model, data: Data, more: str) -> None:
    """Raise `DataError` for data passed to a model that owns its data."""
    if data is not None:
        raise DataError(
            f"{type(model).__name__} owns its data: call fit(model), and {more} for more of them."
        )


def _optimizer(values: Mapping[str, Any], group: Group) -> Optimizer:
    optimizer, rate = values["optimizer"], values["learning_rate"]
    if optimizer is None:
        with group.scope():
            return tf_keras.optimizers.Adam(DEFAULT_RATE if rate is None else rate)
    check_optimizer(optimizer)
    if group.replicas > 1:
        refuse_clipping(optimizer)
    variables = {f"{type(optimizer).__name__} ({v.name})": v for v in state_of(optimizer)}
    refuse_elsewhere(group.strategy, variables, "create the optimizer inside of strategy.scope().")
    return optimizer


def _named(asked: Mapping[str, Any]) -> dict[str, Any]:
    named = {ROWS[field].name: value for field, value in asked.items()}
    if "evaluation" in named and named["evaluation"].data is None:
        named["Evaluation.patience"] = named.pop("evaluation")
    return named


def _shown(name: str, value: object) -> str:
    plain = value is None or isinstance(value, (str, int, float))
    return f"{name}={value!r}" if plain else name


# ---
# Refusals on several replicas.


_OF_ONE_WORKER = ("progress", "callbacks")
"""Options that may differ from worker to worker."""
_PLAIN = (bool, int, float, str, type(None))


def check_on_replicas(
    model: GPModel, strategy: tf.distribute.Strategy, asked: Mapping[str, object]
) -> None:
    """Refuse models, solvers and workers that a strategy cannot train together."""
    # Differing workers would wait for messages that others do not send.
    if asked.get("compile") == "xla":
        raise UnknownOptionError(
            'compile="xla" compiles a step for one device; use compile=True with strategy.'
        )
    solver = asked.get("mean_solver")
    if isinstance(solver, MeanOptimizer):
        solver.check_replicas(strategy)
    method = solver.method if isinstance(solver, MeanSolver) else solver
    if method == "newton" and strategy.num_replicas_in_sync > 1:
        raise UnknownOptionError(
            'mean_solver="newton" solves by conjugate gradients, a loop in which TensorFlow cannot'
            ' sum over replicas; use "adam" or "natural" with strategy.'
        )
    refuse_elsewhere(
        strategy,
        named_variables(model),
        "build the whole model inside of `with strategy.scope():`.",
    )
    check_workers(model, strategy, asked)


def check_workers(
    model: GPModel, strategy: tf.distribute.Strategy, asked: Mapping[str, object]
) -> None:
    """Refuse workers that were started with another model or other options than the first."""
    solver = asked.get("mean_solver")
    parts = {
        name: value if isinstance(value, _PLAIN) else type(value).__name__
        for name, value in asked.items()
        if name not in _OF_ONE_WORKER
    }
    if isinstance(solver, MeanOptimizer):
        parts["mean_solver"] = (  # where solves end, and so how many messages
            f"{type(solver).__name__}, {solver.settings}"
        )
    group = Group(strategy)
    refuse_other_run(
        group, lambda: {**run_settings(model, parts, 0, group), **parameter_digests(model)}
    )


def shards_of(batches: Batches, group: Group) -> list[tf.TensorSpec] | None:
    """Shapes and types of the workers' own batches; None if all share one."""
    if isinstance(batches, (ArrayBatches, DiskBatches)) and batches.batch_size < group.replicas:
        raise DataError(
            f"A batch of {batches.batch_size} rows cannot be shared out to {group.replicas}"
            " replicas; use a larger batch_size, or fewer replicas."
        )
    return batches.signature if isinstance(batches, DatasetBatches) and group.workers > 1 else None
