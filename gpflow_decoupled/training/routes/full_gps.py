"""Affine-independent models: one stage on all data."""

from __future__ import annotations

__all__ = [
    "AffineIndependentRoute", "GraphData", "MessagesRoute", "MultipliersRoute", "SitesRoute",
    "climb_of", "with_climb",
]  # fmt: skip

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ...errors import DataError, UnknownOptionError
from ...models import CVIGP, LCLGP, AffineIndependentGP, FactorGraph, StateSpaceGP
from ...optimizers import ConjugateComputation
from ..batches import Batch, Batches, Data, checksum
from ..options import EVERY, OF_OPTIMIZER, Options
from ..stages.climbs import AffineClimb, has_gaussian_start
from ..stages.full_gps import AffineAscent, Messages, Multipliers, Sites
from ..stages.sites import EvidenceClimb, SitesClimb, has_best_sites, has_evidence
from ..stages.stage import Stage
from ..turns import Part, Plan
from .minibatches import BY_NAME as LBFGS
from .route import ALL_ROWS, Route, plan_on_own_data, rates_of, refuse_data

# ---
# Full GPs with sites: steps, or L-BFGS at the best sites.


_MOST = 2000
"""Evaluations of the evidence in a run without a limit of steps."""


class SitesRoute(Route):
    """`CVIGP`, also returned by `CVIGLM` for more weights than observations, and `StateSpaceGP`."""

    name = "sites"
    models = ("CVIGP", "StateSpaceGP")
    takes = (
        EVERY
        | OF_OPTIMIZER
        | {"natural_gradient", "hold", "negative_precision", "evaluation", "checkpoint"}
    )
    only = ALL_ROWS
    reasons = {
        "batch_size": (
            "Every step takes all data; for minibatches at fixed hyperparameters use"
            " optimizers.ConjugateComputation(step_size).run(model, batch_size=...)."
        ),
        "seed": "Nothing in a step is random.",
    }
    defaults = {"natural_gradient": 0.5}
    holds = ("sites", "moments")

    def options(self, model: CVIGP, asked: Mapping[str, Any]) -> Options:
        return super().options(model, with_climb(model, asked))

    def plan(self, model: CVIGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        if options.on_all_rows:
            return plan_on_own_data(model, climb_of(model, options), options, None)
        rho, rule = options.natural_gradient, None
        if rho is None and not model.trainable_variables:
            raise DataError(
                "No Parameter of the model is trainable, and natural_gradient=None leaves q(f)"
                " where it is."
            )
        if rho is not None:
            policy = options.negative_precision
            rule = ConjugateComputation(float(rho), negative_precision=policy)
        stage = Sites(model, rule, options.optimizer, options.hold, bool(options.compile))
        return plan_on_own_data(model, stage, options, rho)


def with_climb(model: CVIGP | LCLGP, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were asked for, with `optimizer="lbfgs"` as a climb on all rows.

    A `StateSpaceGP` climbs unless options of steps are asked for.
    """
    idle = {"natural_gradient", "hold", "negative_precision", "learning_rate"} & set(asked)
    can_climb = has_evidence(model) or has_best_sites(model)
    asked = dict(asked)
    if isinstance(model, StateSpaceGP) and can_climb and not idle:
        asked.setdefault("optimizer", LBFGS)
    if not isinstance(asked.get("optimizer"), str) or asked["optimizer"] != LBFGS:
        return asked
    if not can_climb:
        raise UnknownOptionError(
            f"optimizer={LBFGS!r} climbs the bound at the best sites, whose expectations must be no"
            f" samples, and latents no weights; this is {model!r}. Leave `optimizer` out."
        )
    if idle:
        raise UnknownOptionError(
            f"optimizer={LBFGS!r} has no use for {', '.join(sorted(idle))}: the sites are the best"
            " ones, and it chooses its own steps. Leave them out."
        )
    return {**asked, "optimizer": None, "on_all_rows": True}


def climb_of(model: CVIGP | LCLGP, options: Options) -> Stage:
    """L-BFGS on the evidence for Gaussian noise, else on the bound at the best sites."""
    kind = EvidenceClimb if has_evidence(model) else SitesClimb
    return kind(model, options.steps or _MOST, bool(options.compile))


# ---
# Full GPs with multipliers: one stage.


class MultipliersRoute(Route):
    """`LCLGP`, also returned by `LCLGLM`."""

    name = "multipliers"
    models = ("LCLGP",)
    takes = EVERY | OF_OPTIMIZER | {"hold", "evaluation", "checkpoint"}
    only = {**ALL_ROWS, "natural_gradient": None}
    reasons = {
        "batch_size": (
            "Every step takes all data; for minibatches at fixed hyperparameters use"
            " optimizers.ConstraintSubset(size, batch_size).run(model)."
        ),
        "natural_gradient": (
            "Multipliers have no step size; natural_gradient=None leaves them where they are."
        ),
        "negative_precision": (
            "The Lagrangian keeps negative precisions as long as V stays positive definite."
        ),
        "seed": "Nothing in a step is random.",
    }
    defaults = {"natural_gradient": 1.0}  # anything but None
    holds = ("sites", "multipliers")

    def options(self, model: LCLGP, asked: Mapping[str, Any]) -> Options:
        return super().options(model, with_climb(model, asked))

    def plan(self, model: LCLGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "build another model")
        moves = options.natural_gradient is not None
        if not moves and not model.trainable_variables:
            raise DataError(
                "No Parameter of the model is trainable, and natural_gradient=None fixes q(f):"
                ' leave natural_gradient at "auto", or call gpflow.set_trainable(model, True).'
            )
        stage: Stage
        if options.on_all_rows:
            stage = climb_of(model, options)
        else:
            compile = bool(options.compile)
            stage = Multipliers(model, moves, options.optimizer, options.hold, compile)
        return plan_on_own_data(model, stage, options, options.natural_gradient)


# ---
# Factor graphs: one stage.


class MessagesRoute(Route):
    """`FactorGraph`, of which nothing but the messages is trained."""

    name = "messages"
    models = ("FactorGraph",)
    takes = EVERY | {"natural_gradient", "Schedule.anneal", "seed", "checkpoint"}
    only = ALL_ROWS
    reasons = {
        "batch_size": (
            "Every step takes all data; for minibatches use"
            " optimizers.MeanFieldCVI(step_size).run(graph, batch_size=...)."
        ),
        "evaluation": (
            "A FactorGraph predicts nothing by itself; Evaluation(patience=...) looks at the bound."
        ),
        "optimizer": "Messages are all that there is to train.",
    }
    defaults = {"natural_gradient": 1.0, "anneal": 0.0}

    def plan(self, model: FactorGraph, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "build another graph")
        rho = options.natural_gradient
        if rho is None:
            raise DataError(
                "natural_gradient=None leaves the messages where they are, and a FactorGraph has"
                " nothing else."
            )
        stage, batches = Messages(model, float(rho), bool(options.compile)), GraphData(model)
        return Plan(
            parts=[Part(stage)],
            batches=batches,
            rates=rates_of(options, rho),
            bound=lambda X, Y: None if stage.sampled else model.elbo(),
            matrices=dict,
            whole=batches.whole,
        )


class GraphData(Batches):
    """The data of a graph, owned by its factors: batches are empty."""

    def __init__(self, graph: FactorGraph) -> None:
        self.arrays = [array for arrays in graph.data.values() for array in arrays]
        self.num_data = graph.num_data or 0

    @property
    def whole(self) -> Batch:
        return tf.zeros([0, 1]), tf.zeros([0, 1])

    @property
    def settings(self) -> dict[str, object]:
        return {"num_data": self.num_data, "checksum of the data": checksum(self.arrays)}

    def __call__(self, step: int) -> Batch:
        return self.whole


# ---


_AFFINE_INDEPENDENT_MOST = 200
"""Evaluations of each climb in a run without a limit of steps."""


class AffineIndependentRoute(Route):
    """`AffineIndependentGP`, also returned by `AffineIndependentGLM`."""

    name = "affine_independent"
    models = ("AffineIndependentGP",)
    takes = EVERY | OF_OPTIMIZER | {"Schedule.refresh_every", "evaluation"}
    only = ALL_ROWS
    reasons = {
        "batch_size": "Every step takes all data.",
        "natural_gradient": "This q is not Gaussian and has no natural gradients.",
        "hold": (
            "This q is not Gaussian and has no sites: its whitened A and b stay while the kernel"
            " moves."
        ),
        "checkpoint": (
            "An ascent may change the base and the grid of the integrals, which no checkpoint of"
            " TensorFlow saves."
        ),
        "seed": "Nothing in a step is random.",
    }
    defaults = {"refresh_every": 20}

    def options(self, model: AffineIndependentGP, asked: Mapping[str, Any]) -> Options:
        if not isinstance(asked.get("optimizer"), str) or asked["optimizer"] != LBFGS:
            return super().options(model, asked)
        if "learning_rate" in asked:
            raise UnknownOptionError(
                f"optimizer={LBFGS!r} has no use for learning_rate: it chooses its own steps. Leave"
                " it out."
            )
        if not has_gaussian_start(model):
            raise UnknownOptionError(
                f"optimizer={LBFGS!r} starts from the best Gaussian q of a full GP, and this model"
                " has weights or inducing points: leave `optimizer` out."
            )
        return super().options(model, {**asked, "optimizer": None, "on_all_rows": True})

    def plan(self, model: AffineIndependentGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "build another model")
        basis = model.basis
        if not basis.b.trainable or not basis.map.trainable_variables:
            raise DataError(
                "A and b of q are what fit finds, and are not trainable: use"
                " gpflow.utilities.set_trainable(model.basis.map, True) and (model.basis.b, True)."
            )
        compiled = bool(options.compile)
        stage = (
            AffineClimb(model, options.steps or _AFFINE_INDEPENDENT_MOST, compiled)
            if options.on_all_rows
            else AffineAscent(model, options.optimizer, compiled)
        )
        closing = stage.closing if isinstance(stage, AffineAscent) else None
        return replace(plan_on_own_data(model, stage, options, None), closing=closing)
