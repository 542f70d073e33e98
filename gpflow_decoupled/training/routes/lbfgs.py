"""The stages of `optimizer="lbfgs"`."""

from __future__ import annotations

__all__ = ["BY_NAME", "plan_on_all_rows"]

from dataclasses import replace
from typing import cast

import tensorflow as tf

from ...errors import DataError, ModelError, UnknownOptionError
from ...inputs import stays_on_disk
from ...models import BasisGP
from ...optimizers.gaussian_optimum import bound_at_optimum, regression
from ..batches import ArrayBatches, Data
from ..options import Options
from ..plan import Part, Plan
from ..stages.collapsed_climb import MOST_ENTRIES, CollapsedClimb, all_points
from .minibatches import plan_on_minibatches

BY_NAME = "lbfgs"
"""The `optimizer` that stands for L-BFGS on all rows."""
_BEFORE_CLIMB = 0.25
"""The share of the run before the climb, in which minibatches find the neighbourhood of a good
kernel.
"""
_LEAST_EVALUATIONS = 30
"""Of a climb in a run whose limit is a number of steps: with fewer, L-BFGS gains less than the
steps on minibatches that it stands for.
"""


def plan_on_all_rows(model: BasisGP, data: Data, options: Options) -> Plan:
    """Return the plan: minibatches, then L-BFGS on all rows."""
    own = _check(model, data, options)
    coupled = plan_on_minibatches(model, data, options)
    batches = cast(ArrayBatches, coupled.batches)
    _check_closed_form(model, batches)
    if not CollapsedClimb.fits(model, batches.num_data):
        raise DataError(
            f"optimizer={BY_NAME!r} keeps about seven matrices of {all_points(model):,} points by"
            f" {batches.num_data:,} rows, and takes up to {MOST_ENTRIES:,.0f} entries in each: use"
            " Adam, fewer points or fewer rows."
        )
    moved = [variable for variable in model.trainable_variables if variable.ref() not in own]
    until, evaluations, whole = _BEFORE_CLIMB, 10**6, (batches.X, batches.Y)
    if options.steps is not None:  # stands for the rows that these steps would have seen
        passes = (1.0 - _BEFORE_CLIMB) * options.steps * batches.batch_size / batches.num_data
        evaluations = max(_LEAST_EVALUATIONS, int(passes))
        until = min(until, 1.0 - 1.0 / options.steps)  # one step is left for the climb
    climb = CollapsedClimb(moved, model, whole, evaluations, bool(options.compile))

    def bound(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        exact = coupled.bound(X, Y)  # None where the norm of the mean is sampled
        return climb.bound(X, Y) if exact is None and climb.done else exact

    return replace(
        coupled,
        parts=[Part(coupled.parts[0].stage, until), Part(climb)],
        whole=whole,
        bound=bound,
        closing=climb.closing,
    )


def _check(model: BasisGP, data: Data, options: Options) -> set[object]:
    if options.group.strategy is not None:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} works on one device alone; leave `strategy` out, or use Adam."
        )
    if not isinstance(data, (tuple, list)) or any(map(stays_on_disk, data)):
        raise DataError(
            f"optimizer={BY_NAME!r} needs all rows in memory: pass arrays (X, Y), or use Adam."
        )
    mean = model.basis.kernel_mean
    own = [*model.basis.gaussian_parameters(), *([] if mean is None else [mean.coefficients])]
    if not all(parameter.trainable for parameter in own):
        raise DataError(
            f"optimizer={BY_NAME!r} sets q in closed form, and some of its Parameters are not"
            " trainable: set their flags by gpflow.set_trainable(model.basis, True), or use Adam."
        )
    return {parameter.unconstrained_variable.ref() for parameter in own}


def _check_closed_form(model: BasisGP, batches: ArrayBatches) -> None:
    if model.expectations is not None:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs a bound in closed form, and model.expectations are"
            " sampled; set them to None."
        )
    try:
        bound_at_optimum(model, regression(model, (batches.X[:1], batches.Y[:1])))
    except ModelError as error:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs the bound at the best q(u). {error}"
        ) from error
