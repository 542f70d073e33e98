"""Full GPs with multipliers: one stage."""

from __future__ import annotations

__all__ = ["MultipliersRoute"]

from collections.abc import Mapping
from typing import Any

from ...errors import DataError
from ...models import LCLGP
from ..batches import Data
from ..options import EVERY, OF_OPTIMIZER, Options
from ..plan import Plan
from ..stages.multipliers import Multipliers
from ..stages.stage import Stage
from .route import ALL_ROWS, Route, plan_on_own_data, refuse_data
from .sites import climb_of, with_climb


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
