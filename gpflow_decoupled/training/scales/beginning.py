"""What a run of `fit` does between its checks and its first step."""

from __future__ import annotations

__all__ = ["Beginning"]

import time
from collections.abc import Callable

import numpy as np

from ...errors import DataError, check_option
from ...inducing.variables import point_values
from ...models import BasisGP, FactorGraph, FullGP
from ..batches import ArrayBatches, Batches
from ..routes.route import Choices
from .digits import check_digits
from .start import Start, check_parts, initialize
from .warn import look_at_scales

_SHARE = 0.1
"""Of a run by seconds, that a start may take."""


class Beginning:
    """Warns of data on another scale than the model, and finds values to start from if that is
    wanted.

    :param model: that is to be trained.
    :param batches: its data.
    :param choices: the options of the run.
    :param start: "auto" for `initialize`, or None.
    :param accept: tells the model what it must know of the data.
    :raises ModelError: for a start of another likelihood than `Gaussian`, or of a multi-output
        kernel.
    :raises DataError: for a start without arrays, or with several replicas; and for a noise
        variance that is smaller than the round-off of the prior's.
    :raises UnknownOptionError: for another start.
    """

    def __init__(
        self,
        model: BasisGP | FullGP | FactorGraph,
        batches: Batches,
        choices: Choices,
        start: str | None,
        accept: Callable[[], None],
    ) -> None:
        check_option("initialize", start, (None, "auto"))
        check_digits(model, batches)
        self.accept = accept
        self.start: Start | None = None
        self._find = None if start is None else _start_of(model, batches, choices)
        if self._find is None:
            look_at_scales(model, batches)

    def __call__(self, done: int) -> float:
        """What happens once nothing can be refused any more; the seconds of the start.

        :param done: steps that an earlier run has done, which has started already.
        """
        self.accept()
        if self._find is None or done:
            return 0.0
        self.start = self._find()
        return self.start.seconds


def _start_of(
    model: BasisGP | FullGP | FactorGraph, batches: Batches, choices: Choices
) -> Callable[[], Start]:
    """What finds the values, or the refusal."""
    if (
        not isinstance(batches, ArrayBatches)
        or not isinstance(model, BasisGP)
        or choices.group.replicas > 1
    ):
        raise DataError(
            'initialize="auto" needs arrays X and Y in one process: call'
            " training.initialize(kernel, likelihood, (X, Y)) on some of the rows before the model"
            " is built."
        )
    check_parts(model.kernel, model.likelihood)
    seconds = np.inf if choices.limits.seconds is None else _SHARE * choices.limits.seconds
    beta = model.basis.beta if point_values(model.basis.beta) else None
    return lambda: initialize(
        model.kernel,
        model.likelihood,
        (batches.X, batches.Y),
        mean_function=model.mean_function,
        beta=beta,
        seed=choices.seed,
        deadline=time.perf_counter() + seconds,
    )
