"""Affine-independent models: one stage on all data."""

from __future__ import annotations

__all__ = ["AffineIndependentRoute"]

from ...errors import DataError
from ...models import AffineIndependentGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, OF_OPTIMIZER, Options
from ..plan import Part, Plan
from ..stages.affine_ascent import AffineAscent
from .route import ALL_ROWS, Route, rates_of, refuse_data


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

    def plan(self, model: AffineIndependentGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "build another model")
        basis = model.basis
        if not basis.b.trainable or not basis.map.trainable_variables:
            raise DataError(
                "A and b of q are what fit finds, and are not trainable: use"
                " gpflow.utilities.set_trainable(model.basis.map, True) and (model.basis.b, True)."
            )
        stage = AffineAscent(model, options.optimizer, bool(options.compile))
        batches = ArrayBatches(*model.data, None, options.seed)
        return Plan(
            parts=[Part(stage)],
            batches=batches,
            rates=rates_of(options, None),
            bound=lambda X, Y: model.elbo(),
            matrices=lambda: basis.matrices(model.kernel),
            whole=batches.whole,
            closing=stage.closing,
        )
