"""Models around a model, which see data in other units than it does."""

from __future__ import annotations

__all__ = ["InUnits"]

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy.typing as npt
from gpflow.models import GPModel

from ..evaluation import Evaluation
from .route import Data


@runtime_checkable
class InUnits(Protocol):
    """A model in the units of the data around one of data of order one; `Standardized` is such a
    model.

    Example::

        inside, data, evaluation = model.on_scale((X, Y), None)
        fit(inside, data)
    """

    model: GPModel

    def on_scale(
        self, data: Data, evaluation: Evaluation | Sequence[npt.ArrayLike] | None
    ) -> tuple[GPModel, Data, Evaluation | Sequence[npt.ArrayLike] | None]:
        """The model inside, and what `fit` must be handed for it, from what the caller hands it for
        this one.
        """
