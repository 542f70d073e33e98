"""The step and the batches of a run that ends with L-BFGS on all rows, and the checks of model and
data.
"""

from __future__ import annotations

__all__ = ["BY_NAME", "parts_on_all_rows"]

from collections.abc import Callable
from typing import cast

from ....errors import DataError, ModelError, UnknownOptionError
from ....inputs import stays_on_disk
from ....models import BasisGP
from ....optimizers.gaussian_optimum import regression
from ...batches import ArrayBatches, Batches
from ...steps import Step
from ..route import Choices, Data
from .batches import AllRows
from .climb import MOST_ENTRIES, CollapsedClimb, all_points
from .step import AllRowsStep

BY_NAME = "lbfgs"
"""The `optimizer` that stands for L-BFGS on all rows."""

Parts = Callable[[BasisGP, Data, Choices], tuple[Step, Batches]]
"""What makes the step and the batches of a run on minibatches."""


def parts_on_all_rows(
    model: BasisGP, data: Data, choices: Choices, minibatch_parts: Parts
) -> tuple[AllRowsStep, AllRows]:
    """An `AllRowsStep` and its batches.

    :param model: the model.
    :param data: as they were passed to `fit`.
    :param choices: the options of the run, whose optimizer moves all but q in the steps on
        minibatches.
    :param minibatch_parts: makes the parts of the same run without L-BFGS.
    :raises UnknownOptionError: where q(u) has no closed form, and on several replicas.
    :raises DataError: for data that are not in memory or too large, and a q(u) that is not
    trainable.
    """
    if choices.group.strategy is not None:
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
    step, found = minibatch_parts(model, data, choices)
    arrays = cast(ArrayBatches, found)
    _check_closed_form(model, arrays)
    if not CollapsedClimb.fits(model, arrays.num_data):
        raise DataError(
            f"optimizer={BY_NAME!r} keeps about seven matrices of {all_points(model):,} points by"
            f" {arrays.num_data:,} rows, and takes up to {MOST_ENTRIES:,.0f} entries in each: use"
            " Adam, fewer points or fewer rows."
        )
    batches = AllRows(arrays.X, arrays.Y, arrays.batch_size, choices.seed)
    of_q = {parameter.unconstrained_variable.ref() for parameter in own}
    variables = [variable for variable in model.trainable_variables if variable.ref() not in of_q]
    climb = CollapsedClimb(variables, model, batches.whole, choices.compile)
    return AllRowsStep(step, climb, arrays.batch_size, choices.limits), batches


def _check_closed_form(model: BasisGP, batches: ArrayBatches) -> None:
    """Raise `UnknownOptionError` unless the best q(u) of the model is known in closed form."""
    if model.expectations is not None:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs a bound in closed form, and model.expectations are"
            " sampled; set them to None."
        )
    try:
        model.basis.collapsed_elbo(model.kernel, regression(model, (batches.X[:1], batches.Y[:1])))
    except ModelError as error:
        raise UnknownOptionError(
            f"optimizer={BY_NAME!r} climbs the bound at the best q(u). {error}"
        ) from error
