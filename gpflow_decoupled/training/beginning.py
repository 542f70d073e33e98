"""Checks and start of a run."""

from __future__ import annotations

__all__ = ["Beginning"]

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..diagnostics import check_digits, warn_of_scales
from ..errors import DataError
from ..inducing.variables import point_values
from ..models import BasisGP, FactorGraph, FullGP
from ..optimizers.start import Start, check_parts, initialize
from .batches import ArrayBatches, Batches, DatasetBatches, DiskBatches, FunctionBatches
from .options import Options

_SHARE = 0.1
"""Of a run by seconds, that a start may take."""
_ROWS = 10_000
"""At which the prior variance is computed at most."""


class Beginning:
    """Checks before the first step: scales of the data, digits, and values to start from.

    :param accept: tells the model about the data.
    """

    def __init__(
        self,
        model: BasisGP | FullGP | FactorGraph,
        batches: Batches,
        options: Options,
        accept: Callable[[], None],
    ) -> None:
        if not isinstance(model, FactorGraph):  # which has no kernel
            _check_digits(model, batches)
        self.accept = accept
        self.start: Start | None = None
        self._find = None if options.initialize is None else _start_of(model, batches, options)
        if self._find is None and not isinstance(model, FactorGraph):
            _look_at_scales(model, batches)

    def __call__(self, done: int) -> float:
        """Tell the model about the data and find the start; return its seconds.

        :param done: steps of an earlier run; with any, the start is skipped.
        """
        self.accept()
        if self._find is None or done:
            return 0.0
        self.start = self._find()
        return self.start.seconds


def _start_of(
    model: BasisGP | FullGP | FactorGraph, batches: Batches, options: Options
) -> Callable[[], Start]:
    if (
        not isinstance(batches, ArrayBatches)
        or not isinstance(model, BasisGP)
        or options.group.replicas > 1
    ):
        raise DataError(
            'initialize="auto" needs arrays X and Y in one process: call'
            " training.initialize(kernel, likelihood, (X, Y)) on some of the rows before the model"
            " is built."
        )
    check_parts(model.kernel, model.likelihood)
    seconds = np.inf if options.limits.seconds is None else _SHARE * options.limits.seconds
    beta = model.basis.beta if point_values(model.basis.beta) else None
    return lambda: initialize(
        model.kernel,
        model.likelihood,
        (batches.X, batches.Y),
        mean_function=model.mean_function,
        beta=beta,
        seed=options.seed,
        deadline=time.perf_counter() + seconds,
    )


def _check_digits(model: BasisGP | FullGP, batches: Batches) -> None:
    if isinstance(batches, ArrayBatches):
        check_digits(model, batches.X[:_ROWS])
    elif isinstance(batches, DiskBatches):
        check_digits(model, tf.constant(batches.sample[0]))


def _look_at_scales(model: BasisGP | FullGP, batches: Batches) -> None:
    if isinstance(batches, ArrayBatches):
        warn_of_scales(model, batches.X.numpy(), batches.Y.numpy(), batches.num_data)
    elif isinstance(batches, DiskBatches):
        warn_of_scales(model, *batches.sample, batches.num_data)
    elif isinstance(batches, (DatasetBatches, FunctionBatches)):
        batches.look = lambda X, Y: warn_of_scales(model, X, Y, batches.num_data)
