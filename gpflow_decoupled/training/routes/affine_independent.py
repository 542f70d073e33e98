"""Affine-independent models: one stage on all data."""

from __future__ import annotations

__all__ = ["AffineIndependentRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import DataError, UnknownOptionError
from ...models import AffineIndependentGP
from ..batches import Data
from ..options import EVERY, OF_OPTIMIZER, Options
from ..plan import Plan
from ..stages.affine_ascent import AffineAscent
from ..stages.affine_climb import AffineClimb, has_gaussian_start
from .lbfgs import BY_NAME as LBFGS
from .route import ALL_ROWS, Route, plan_on_own_data, refuse_data

_MOST = 200
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
            AffineClimb(model, options.steps or _MOST, compiled)
            if options.on_all_rows
            else AffineAscent(model, options.optimizer, compiled)
        )
        closing = stage.closing if isinstance(stage, AffineAscent) else None
        return replace(plan_on_own_data(model, stage, options, None), closing=closing)
