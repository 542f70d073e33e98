"""Minibatches from a function that reads them."""

from __future__ import annotations

__all__ = ["FunctionBatches", "Passes"]

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ...models import BasisGP
from ...models.checks import check_values
from .base import Batch, Batches

Passes: TypeAlias = Callable[[], Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]]
"""Starts a pass over batches X [B, D] and Y [B, P]."""


class FunctionBatches(Batches):
    """Batches of a function that is called for each pass over the data, in its order.

    Every batch is checked when it is read.

    :param model: checks the batches, and knows the number of rows, `num_data`.
    :param passes: a function without arguments that returns an iterator of (X [B, D], Y [B, P]).
    """

    def __init__(self, model: BasisGP, passes: Passes) -> None:
        if model.num_data is None:
            raise DataError(
                "A function does not tell the size of the data in rows: pass num_data=N to the"
                " model."
            )
        self.model, self.passes, self.num_data = model, passes, int(model.num_data)
        self.look: Callable[[np.ndarray, np.ndarray], None] = lambda X, Y: None
        """Is shown X [B, D] and Y [B, P] of the first batch, once they are checked"""
        self._pass: Iterator[tuple[npt.ArrayLike, npt.ArrayLike]] | None = None
        self._read = self._rows = 0

    # a resumed run reads up to its place, so that a checkpoint needs nothing

    def __call__(self, step: int) -> Batch:
        """The batch of step 0, 1, ...: X [B, D], Y [B, P]; earlier ones are read and dropped."""
        is_first = self._read == 0
        X, Y = self._next()
        while self._read <= step:
            X, Y = self._next()
        if is_first:
            self.look(X.numpy(), Y.numpy())
        return X, Y

    def close(self) -> None:
        """End the pass, so that a generator runs its `finally` now."""
        if isinstance(self._pass, Generator):
            self._pass.close()
        self._pass = None

    def _next(self) -> Batch:
        batch = None if self._pass is None else next(self._pass, None)
        if batch is None:
            self._start_pass()
            assert self._pass is not None
            batch = next(self._pass, None)
            if batch is None:
                raise DataError(
                    "The function of the data gave no batches: it must return a new iterator at"
                    " each call."
                )
        X, Y = self.model.as_tensors(batch)
        model = self.model
        check_values(X.numpy(), Y.numpy(), model.likelihood, model.kernel, model.mean_function)
        self._read += 1
        self._rows += int(X.shape[0])
        return X, Y

    def _start_pass(self) -> None:
        if self._pass is not None and self._rows != self.num_data:
            raise DataError(
                f"This pass had {self._rows} rows and num_data is {self.num_data}: every pass must"
                " go through the whole data set. If these rows are all data, set model.num_data ="
                f" {self._rows}."
            )
        batches = self.passes()
        if not isinstance(batches, Iterable):
            raise DataError(
                f"The function of the data returned a {type(batches).__name__}; it must return an"
                " iterator of batches (X, Y)."
            )
        self._pass, self._rows = iter(batches), 0
