"""The settings of optimizers of the mean on all data."""

from __future__ import annotations

__all__ = ["MeanSettings"]

import abc
from typing import ClassVar

import tensorflow as tf

from ...inputs import check_rate, check_whole
from .mean_solution import Solve


class MeanSettings(abc.ABC):
    """Fields of `MeanOptimizer`, and the solver of its linear systems."""

    tolerance: float
    max_steps: int
    rank: int | None
    float32: bool
    progress: bool
    certify: bool = True
    """Compute the gap in full precision; a field of the classes with this choice."""
    preconditioner: str = "points"
    """Also such a field; see `ConjugateGradients`."""
    mixes: ClassVar[bool] = False
    """True if it solves the system of outputs that mix latents, `MixedSystem`."""
    not_on_replicas: ClassVar[str] = ""
    """Why several replicas cannot share the work, with the alternative; "" if they can."""

    def __post_init__(self) -> None:
        check_rate(tolerance=self.tolerance)
        check_whole(1, max_steps=self.max_steps)
        if self.rank is not None:
            check_whole(1, rank=self.rank)

    @property
    def settings(self) -> dict[str, object]:
        """All fields that change a result, by name; equal on all workers."""
        return {name: value for name, value in vars(self).items() if name != "progress"}

    @abc.abstractmethod
    def solver(self, dtype: tf.DType | None) -> Solve:
        """The solver of a run's linear systems.

        :param dtype: tf.float32 for faster products; None is the dtype of the data.
        """
