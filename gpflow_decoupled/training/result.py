"""The record of a run of `fit`."""

from __future__ import annotations

__all__ = ["RECENT", "FitResult", "History", "Totals"]

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..models import Evidence
from ..optimizers.ascent import RunResult
from ..optimizers.start import Start

if TYPE_CHECKING:
    import pandas as pd

RECENT = 20
"""Steps whose mean stands for the bound where each step estimates it on its rows."""


class History:
    """Traces of a run: a list per quantity, with the steps of its entries."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)

    def append(self, **values: float) -> None:
        """Record quantities of one step."""
        for name, value in values.items():
            self._values[name].append(float(value))

    def arrays(self) -> dict[str, np.ndarray]:
        """The traces as arrays."""
        return {name: np.asarray(values) for name, values in self._values.items()}

    def tail(self, name: str, count: int) -> list[float]:
        """The last `count` values of a quantity, or as many as there are."""
        return self._values[name][-count:] if name in self._values else []

    def mean(self, name: str, count: int, skip: int = 0) -> float:
        """Mean of the last `count` values before the last `skip`; NaN for none."""
        values = self.tail(name, count + skip)
        values = values[: len(values) - skip]
        return float(np.mean(values)) if values else float("nan")

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from saved traces."""
        self._values.clear()
        for name, values in arrays.items():
            self._values[name] = [float(value) for value in values]


@dataclass
class Totals:
    """Sums over the steps of a run, and its best score; part of a checkpoint."""

    seconds: float = 0.0
    shortened: int = 0
    clipped: int = 0
    refreshes: int = 0
    best: float = -np.inf
    """The best score of an evaluation."""
    best_step: int = 0
    """The step of that evaluation."""
    waited: int = 0
    """Evaluations since then."""
    finished: str = ""
    """Why no stage has anything left to do; empty before that, and in a checkpoint after an
    interrupt.
    """
    converged: bool = False
    limits: Mapping[str, float | None] = field(default_factory=dict)
    """The limits of the run that found `finished`, by name."""
    ended: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the result of a run whose closing work is done; empty before that."""

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Totals:
        """Return the totals of a checkpoint."""
        return cls(
            seconds=float(saved["seconds"]),
            shortened=int(saved["shortened"]),
            clipped=int(saved["clipped"]),
            refreshes=int(saved["refreshes"]),
            best=float(saved["best"]),
            best_step=int(saved.get("best_step", 0)),
            waited=int(saved["waited"]),
            finished=str(saved.get("finished", "")),
            converged=bool(saved.get("converged", False)),
            limits=dict(saved.get("limits", {})),
            ended=dict(saved.get("ended", {})),
        )

    def nothing_is_left(self, limits: Mapping[str, float | None]) -> bool:
        """True if a run with these limits, by name, has no step left; always once converged."""
        return self.converged or (bool(self.finished) and self.limits == limits)


@dataclass(kw_only=True, repr=False)
class FitResult(RunResult):
    """The result of `fit`.

    `elbo` is the bound in nats at the end; on minibatches the mean of the last 20 estimates.
    `seconds` excludes compilation and evaluations. `converged`: patience or a tolerance ended the
    run.

    `history` has arrays "step", "seconds" and "elbo", the bound in nats before each step, on
    inducing points and with sites, else after it. With `Evaluation` it has "evaluation_step",
    "evaluation_seconds", "rmse" and "log_density" (nats per observation); for an `NNGP`
    "leave_one_out". Example::

        result = fit(model, (X, Y))
        print(result, result.history["elbo"][-1])
    """

    compile_seconds: float
    """Wall-clock time of tracing the first step, beside `seconds`."""
    shortened_steps: int = 0
    """Updates of q that were shortened to stay feasible."""
    clipped_sites: int = 0
    """Observations whose negative precision was clipped, summed over steps."""
    refreshes: int = 0
    """Refreshes, see `Schedule`."""
    gap: float | None = None
    """For a mean on all data: the last solve is at most so many nats below its maximum over the
    mean, of the ELBO for Gaussian noise, else of the quadratic of the last sites. None where no
    solve was certified.
    """
    restored_step: int | None = None
    """The step whose Parameters the model has, if the run went back: to the best evaluation if
    patience ended it, to the last sound bound if the last step spoilt it. `history` keeps the steps
    after it; the model's scores are the entry with this "evaluation_step"."""
    objective: str = "ELBO"
    """The meaning of `elbo`: on minibatches "estimated ELBO"; for an `NNGP` an estimate of its log
    likelihood, which is no bound."""
    evidence: Evidence | None = None
    """An interval for the log evidence at the final kernel, noise and mean function; models of
    the same data compare by it. For Gaussian noise, outputs that are not mixed and arrays, where it
    takes at most a tenth of the run's time, beside `seconds`; exact up to 2,000 rows. None
    elsewhere: call `model.evidence`."""
    start: Start | None = None
    """The record of `initialize="auto"`; None also for a resumed run."""

    def summary(self) -> pd.DataFrame:
        """Return the history as a data frame, a row per step; scores of an evaluation in its step's
        row.

        Example::

            result.summary().dropna().plot(x="seconds", y="log_density")
        """
        import pandas as pd

        steps = {name: self.history[name] for name in ("seconds", "elbo") if name in self.history}
        table = pd.DataFrame(steps, index=pd.Index(self.history.get("step", []), name="step"))
        others = {k: v for k, v in self.history.items() if k not in ("step", "seconds", "elbo")}
        at = others.pop("evaluation_step", None)
        others.pop("evaluation_seconds", None)
        for name, values in others.items():
            index = at if at is not None and len(values) == len(at) else table.index
            if len(values) == len(index):
                scores = pd.Series(values, index=index)
                table[name] = scores[~scores.index.duplicated(keep="last")]
        return table

    def __str__(self) -> str:
        pace = 1e3 * self.seconds / max(1, self.steps)
        line = (
            f"{self.steps} step{'s' if self.steps != 1 else ''} in {self.seconds:.1f} s"
            f" ({pace:.1f} ms per step),"
            f" {self.objective} {self.elbo:.4g}, stopped: "
        )
        extra = f", {self.shortened_steps} shortened steps" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        extra += "" if self.gap is None else f", gap {self.gap:.2g} nats"
        extra += "" if self.restored_step is None else f", Parameters of step {self.restored_step}"
        extra += "" if self.evidence is None else f", {self.evidence}"
        return line + self.reason + extra
