"""Full GPs with sites: one stage, on all data."""

from __future__ import annotations

__all__ = ["SitesRoute"]

from ...errors import DataError
from ...models import CVIGP
from ...optimizers import ConjugateComputation
from ..batches import ArrayBatches, Data
from ..options import EVERY, OF_OPTIMIZER, Options
from ..plan import Part, Plan
from ..stages.sites import Sites
from .route import ALL_ROWS, Route, rates_of, refuse_data


class SitesRoute(Route):
    """`CVIGP`, also returned by `CVIGLM` for more weights than observations."""

    name = "sites"
    models = ("CVIGP",)
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

    def plan(self, model: CVIGP, data: Data, options: Options) -> Plan:
        """Return the updates of sites and hyperparameters on all data."""
        refuse_data(model, data, "model.update(data)")
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
        batches = ArrayBatches(*model.data, None, options.seed)
        return Plan(
            parts=[Part(stage)],
            batches=batches,
            rates=rates_of(options, rho),
            bound=lambda X, Y: model.elbo(),
            matrices=lambda: model.basis.matrices(model.kernel),
            whole=batches.whole,
        )
