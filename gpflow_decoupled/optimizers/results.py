"""Results and records of optimizers."""

from __future__ import annotations

__all__ = ["Recorder", "RunResult"]

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from ..summaries import html_table


@dataclass(kw_only=True, repr=False)
class RunResult:
    """The fields that all results share; each optimizer adds its own.

    `history` has arrays [steps], one entry per recorded step, among them "step", "seconds" (since
    the start) and "elbo" (nats).
    """

    elbo: float
    """The model's bound after the run, in nats; NaN if never computed."""
    steps: int
    seconds: float
    """Wall-clock time of the run, compilation included."""
    history: dict[str, np.ndarray]
    converged: bool
    """True if the tolerance was reached."""
    reason: str
    """Why the run ended."""

    def __str__(self) -> str:
        return (
            f"{self.steps} steps in {self.seconds:.2f} s, ELBO {self.elbo:.6g}, stopped:"
            f" {self.reason}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return html_table(type(self).__name__, values)


Result = TypeVar("Result", bound=RunResult)


class Recorder:
    """The history of a running optimizer: one row per recorded step."""

    def __init__(self, *columns: str) -> None:
        self.columns = ("step", "seconds", *columns)
        self.rows: list[tuple[float, ...]] = []
        self._began = time.perf_counter()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def seconds(self) -> float:
        """Wall-clock time since the recorder was made."""
        return time.perf_counter() - self._began

    def append(self, step: int, **values: float) -> None:
        """Record one step; `values` has every column, NaN if unknown."""
        self.rows.append((step, self.seconds, *(float(values[name]) for name in self.columns[2:])))

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The columns as arrays [rows]."""
        table = np.array(self.rows, dtype=float).reshape(-1, len(self.columns)).T
        return dict(zip(self.columns, table))

    def finish(
        self, kind: Callable[..., Result], elbo: float, reason: str, **own: object
    ) -> Result:
        """Return the result of class `kind`, converged if `reason` says so.

        :param elbo: the bound at the end, in nats.
        """
        return kind(
            elbo=elbo,
            steps=len(self),
            seconds=self.seconds,
            history=self.history,
            converged=reason == "converged",
            reason=reason,
            **own,
        )
