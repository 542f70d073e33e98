"""The contract between `fit` and the families of models."""

from __future__ import annotations

__all__ = [
    "EVERY_ROUTE", "METHODS", "OF_OPTIMIZER", "OWN_DATA", "Choices", "Data", "MeanSolver", "Model",
    "Route", "hyperparameters_of", "kinds_of", "refuse_data",
]  # fmt: skip

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.models import GPModel

from ...errors import DataError, UnknownOptionError, check_option
from ...inputs import check_rate, check_whole
from ...models import BasisGP, FactorGraph, FullGP
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.steps import POLICIES
from ...replicas import Group, apply_trainable, check_strategy, refuse_elsewhere
from ..batches import Batches, Passes
from ..options import check_optimizer, given
from ..schedules import Limits, Rates
from ..steps import Step
from .keras import Optimizer, refuse_clipping, state_of

Model: TypeAlias = GPModel | FactorGraph
Data: TypeAlias = (
    "Sequence[npt.ArrayLike] | tf.data.Dataset | Passes | "
    "Callable[[tf.distribute.InputContext], tf.data.Dataset] | None"
)

EVERY_ROUTE = frozenset(
    {"steps", "seconds", "Evaluation.patience", "callbacks", "progress", "compile"}
)
OF_OPTIMIZER = frozenset({"learning_rate", "optimizer", "Schedule.anneal"})
"""What a route takes that has an optimizer for kernel, likelihood and mean function."""
OWN_DATA: Mapping[str, object] = {"batch_size": None}
"""What a route says of the data of models that own them: every step sees them all."""

METHODS = ("adam", "natural", "newton")
"""Of a `MeanSolver`."""
PRECISIONS = ("full", "mixed")
"""Of a training step."""

DEFAULT_RATE = 0.03


@dataclass(frozen=True)
class MeanSolver:
    """What `fit` moves the coefficients of the mean points by.

    :param method: "adam"; "natural", a natural gradient, (D41) or (D42); or "newton", which solves
        (D49) by conjugate gradients and is for `OrthogonalBasis` with points of its own. For a mean
        on all data pass a `ConjugateGradients` or a `StochasticDualDescent` as `mean_solver` in the
        place of this class.
    :param learning_rate: its step size. If it is not given, 1 for "natural" and "newton"; for
        "adam" 0.03 up to 1000 mean points and in inverse proportion to their number beyond, where
        the noise of minibatches would carry them away.
    :raises UnknownOptionError: for another method.
    :raises DataError: for a step size that is not above 0.

    Example::

        fit(model, (X, Y), mean_solver=MeanSolver("natural", learning_rate=0.5))
    """

    method: str = "adam"
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_option("mean_solver", self.method, METHODS)
        check_rate(**given(mean_learning_rate=self.learning_rate))


@dataclass(frozen=True)
class Choices:
    """The options that shape a step and its batches, with the defaults of the route filled in and
    values checked.
    """

    batch_size: int | None | str
    natural_gradient: float | None | str
    """"auto" where the route chooses it by the batches, see `Route.natural_step`."""
    hold: str
    optimizer: Optimizer
    learning_rate: float
    mean_solver: MeanSolver | MeanOptimizer
    negative_precision: str
    precision: str
    ramp_steps: int
    anneal: float
    refresh_every: int
    seed: int
    compile: bool
    xla: bool
    on_all_rows: bool
    """Whether L-BFGS on all rows follows the steps of the optimizer."""
    limits: Limits
    group: Group


class Route(abc.ABC):
    """How `fit` trains one family of models.

    :cvar models: the classes of the family.
    :cvar options: the names of the options that it uses; a field of an object is written as
        `Schedule.anneal`.
    :cvar only: options of which it takes one value alone, which says what it does anyway.
    :cvar reasons: for options that it does not use, why, or what to use instead.
    :cvar defaults: values of options that are not chosen, where they differ from those of the other
        routes.
    :cvar holds: the values of `hold`.
    :cvar compiles: the values of `compile`.
    """

    models: ClassVar[tuple[type, ...]]
    options: ClassVar[frozenset[str]]
    only: ClassVar[Mapping[str, object]] = {}
    reasons: ClassVar[Mapping[str, str]] = {}
    defaults: ClassVar[Mapping[str, object]] = {}
    holds: ClassVar[tuple[str, ...]] = ()
    compiles: ClassVar[tuple[bool | str, ...]] = (True, False)

    def options_of(self, model: Model) -> frozenset[str]:
        """The options that this model uses; fewer than `options` where it lacks what one of them
        acts on.
        """
        return self.options

    def only_of(self, model: Model) -> Mapping[str, object]:
        """Options of which this model takes one value alone; more than `only` where it lacks what
        one of them acts on.
        """
        return self.only

    def view(self, model: Model) -> BasisGP | FullGP | FactorGraph:
        """The model as its step sees it: itself, or a model of this package that shares its
        Parameters.

        :raises ModelError: for a model of the family that cannot be trained.
        """
        return model

    @abc.abstractmethod
    def parts(self, model: Model, data: Data, choices: Choices) -> tuple[Step, Batches]:
        """The step and the batches; nothing is changed but what `undo` takes back.

        :param model: what `view` returned.
        :param data: as they were passed to `fit`.
        :raises DataError: for unusable data, and where there is nothing to train.
        """

    def undo(self, model: Model) -> Callable[[], None]:
        """What makes the model as it is now again, where the run is refused after `parts`."""
        return lambda: None

    def accept(self, model: Model, view: Model, batches: Batches) -> None:
        """Tell the model what it must know of the data; this is the first change that a run
        makes.
        """
        return None

    def mean_rate(self, model: Model, solver: MeanSolver) -> float:
        """The step size of the mean coefficients; for routes that have none, any number."""
        return 1.0

    def check(self, model: Model, chosen: Mapping[str, object]) -> None:
        """Refuse options that would be ignored.

        :param chosen: the options that the caller has chosen, by name.
        :raises UnknownOptionError: with the options that this model takes, or the values of
            `compile`.
        :raises DataError: for a strategy whose replicas do not take each step together.
        """
        check_strategy(chosen.get("strategy"), model.variables)
        apply_trainable(model.variables)
        compiled = chosen.get("compile", True)
        check_option(
            "compile",
            compiled if isinstance(compiled, (bool, str)) else repr(compiled),
            self.compiles,
        )
        taken, only = self.options_of(model), self.only_of(model)
        bad = [
            name
            for name, value in chosen.items()
            if name not in taken and not (name in only and value is only[name])
        ]
        if not bad:
            return
        shown = ", ".join(_shown(name, chosen[name]) for name in bad)
        known = {"strategy": _ON_REPLICAS, **self.reasons}
        reasons = "".join(f" {known[name]}" for name in bad if name in known)
        names = sorted(taken, key=str.lower) + [_shown(*item) for item in only.items()]
        raise UnknownOptionError(
            f"fit does not use {shown} for {type(model).__name__}.{reasons} It takes"
            f" {', '.join(names)}."
        )

    def defaults_of(self, model: Model, chosen: Mapping[str, object]) -> Mapping[str, object]:
        """`defaults`, or others where this model or what the caller has `chosen` asks for them."""
        return self.defaults

    def choose(self, model: Model, chosen: Mapping[str, object], limits: Limits) -> Choices:
        """The choices of the caller, and defaults for the rest.

        :param model: that is to be trained.
        :param chosen: the options that the caller has chosen, by name.
        :param limits: when the run ends.
        :raises DataError: for values out of range.
        :raises UnknownOptionError: for values that do not exist.
        """
        values: dict[str, Any] = {
            **_DEFAULTS,
            **self.defaults_of(model, chosen),
            **chosen,
        }  # each of the type of its field
        check_whole(0, **given(seed=values["seed"]))
        check_rate(**given(learning_rate=values["learning_rate"]))
        if values["natural_gradient"] != "auto":
            check_rate(1.0, **given(natural_gradient=values["natural_gradient"]))
        check_option("negative_precision", values["negative_precision"], POLICIES)
        check_option("precision", values["precision"], PRECISIONS)
        if self.holds:
            check_option("hold", values["hold"], self.holds)
        solver, rate, optimizer = (
            values["mean_solver"],
            values["learning_rate"],
            values["optimizer"],
        )
        group = Group(values["strategy"])
        if optimizer is None:
            with group.scope():
                optimizer = tf_keras.optimizers.Adam(DEFAULT_RATE if rate is None else rate)
        else:
            check_optimizer(optimizer)
            if group.replicas > 1:
                refuse_clipping(optimizer)
            refuse_elsewhere(
                group.strategy,
                _variables_of(optimizer),
                "create the optimizer inside of strategy.scope().",
            )
        return Choices(
            batch_size=values["batch_size"],
            natural_gradient=values["natural_gradient"],
            hold=values["hold"],
            optimizer=optimizer,
            learning_rate=(
                float(tf.convert_to_tensor(optimizer.learning_rate)) if rate is None else rate
            ),
            mean_solver=(
                solver if isinstance(solver, (MeanSolver, MeanOptimizer)) else MeanSolver(solver)
            ),
            negative_precision=values["negative_precision"],
            precision=values["precision"],
            ramp_steps=values["Schedule.ramp_steps"],
            anneal=values["Schedule.anneal"],
            refresh_every=values["Schedule.refresh_every"],
            seed=values["seed"],
            compile=bool(values["compile"]),
            xla=values["compile"] == "xla",
            on_all_rows=False,
            limits=limits,
            group=group,
        )

    def natural_step(self, model: Model, choices: Choices, batches: Batches) -> float | None:
        """The step size of q; None where an optimizer moves it."""
        rho = choices.natural_gradient
        return None if rho is None else float(rho)

    def rates(self, model: Model, choices: Choices, batches: Batches) -> Rates:
        """The step sizes before ramp and annealing."""
        solver = choices.mean_solver
        mean_rate = 1.0  # what solves for a mean on all data has settings of its own
        if isinstance(solver, MeanSolver):
            mean_rate = solver.learning_rate or self.mean_rate(model, solver)
        rho = self.natural_step(model, choices, batches)
        return Rates(rho, choices.learning_rate, mean_rate, choices.ramp_steps, choices.anneal)


_DEFAULTS: Mapping[str, object] = {
    "batch_size": "auto",
    "natural_gradient": None,
    "hold": "sites",
    "optimizer": None,
    "learning_rate": None,
    "mean_solver": "adam",
    "negative_precision": "damp",
    "precision": "full",
    "Schedule.ramp_steps": 0,
    "Schedule.anneal": 0.2,
    "Schedule.refresh_every": 100,
    "seed": 0,
    "compile": True,
    "strategy": None,
}

_ON_REPLICAS = (
    "Models on inducing points, as ODVGP and SparseCVIGP, are what several replicas train."
)


def _variables_of(optimizer: Optimizer) -> dict[str, tf.Variable]:
    """The variables of a new optimizer, by what a message calls them."""
    return {
        f"{type(optimizer).__name__} ({variable.name})": variable
        for variable in state_of(optimizer)
    }


def _shown(name: str, value: object) -> str:
    """An option as it is written in a call."""
    plain = value is None or isinstance(value, (str, int, float))
    return f"{name}={value!r}" if plain else name


def refuse_data(model: Model, data: Data, more: str) -> None:
    """Raise `DataError` if data were passed to a model that owns them; `more` says what to do with
    other data.
    """
    if data is not None:
        raise DataError(
            f"{type(model).__name__} owns its data: call fit(model), and {more} for more of them."
        )


def hyperparameters_of(model: FullGP) -> list[tf.Variable]:
    """What is trainable beside q: the variables of the basis are moved by the rule of their family,
    whatever their flags.
    """
    of_q = {variable.ref() for variable in model.basis.variables}
    return [variable for variable in model.trainable_variables if variable.ref() not in of_q]


def kinds_of(model: GPModel) -> dict[str, object]:
    """The classes of the parts of a model, which must be the same for a run to go on."""
    return {
        part: type(getattr(model, part)).__name__
        for part in ("basis", "kernel", "likelihood", "mean_function")
    }
