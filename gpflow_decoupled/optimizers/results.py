"""What every run of an optimizer returns, and the record from which it is made."""

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
    """The fields that the results of all runs share; each optimizer adds its own.

    `history` has arrays [steps] with one entry per recorded step, among them "step", "seconds"
    (since the start of the run) and "elbo" (nats).
    """

    elbo: float
    """The bound of the model as the run left it, in nats; NaN where the run never computed it."""
    steps: int
    seconds: float
    """Wall-clock time of the run, compilation included."""
    history: dict[str, np.ndarray]
    converged: bool
    """Whether the run ended because its tolerance was reached."""
    reason: str
    """Why the run ended, in words."""

    def __str__(self) -> str:
        """One line: steps, time, bound and why the run ended."""
        return (
            f"{self.steps} steps in {self.seconds:.2f} s, ELBO {self.elbo:.6g}, stopped:"
            f" {self.reason}"
        )

    def __repr__(self) -> str:
        """The same line with the name of the class, since the arrays of `history` fill pages."""
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        """A table of all fields for notebooks."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return html_table(type(self).__name__, values)


Result = TypeVar("Result", bound=RunResult)


class Recorder:
    """The history of a run while it grows: one row per recorded step.

    :param columns: names of what is recorded beside "step" and "seconds".
    """

    def __init__(self, *columns: str) -> None:
        self.columns = ("step", "seconds", *columns)
        self.rows: list[tuple[float, ...]] = []
        self._began = time.perf_counter()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def seconds(self) -> float:
        """Wall-clock time since the recorder was made."""
        return time.perf_counter() - self._began

    def append(self, step: int, **values: float) -> None:
        """Record one step; `values` has an entry for every column, and NaN stands for what is not
        known.
        """
        self.rows.append((step, self.seconds, *(float(values[name]) for name in self.columns[2:])))

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The columns as arrays [rows]."""
        table = np.array(self.rows, dtype=float).reshape(-1, len(self.columns)).T
        return dict(zip(self.columns, table))

    def finish(
        self, kind: Callable[..., Result], elbo: float, reason: str, **own: object
    ) -> Result:
        """The result of a run of which each row is a step, and which converged if that is the
        reason.

        :param kind: the class of the result.
        :param elbo: the bound at the end, in nats.
        :param reason: why the run ended.
        :param own: the fields that the class has beside those of `RunResult`.
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
