"""What each model of the demo left behind, as a table and as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled


@dataclass
class Score:
    """How well the held-out pixels are predicted."""

    rmse: float
    """Grey levels from 0 (black) to 1 (white)."""
    log_density: float
    """Mean, in nats of grey levels."""
    coverage: float
    """Share within their intervals of 95 %."""


@dataclass
class Row:
    """A line of the table."""

    model: str
    sees: str
    """The number of points of its mean and of its covariance, or of pixels for a prediction."""
    score: Score
    seconds: float
    """Of training."""
    elbo: float | None = None
    """Bound on all training pixels in nats of grey levels; None for a model without one."""
    steps: int | None = None


@dataclass
class Outcome:
    """What one model left behind."""

    row: Row
    mean: np.ndarray
    """[H, W], grey levels."""
    std: np.ndarray | None
    """[H, W], of the brightness without noise, grey levels; None for a model without one."""
    noise: float
    """Standard deviation of the noise, grey levels."""
    trace: dict[str, np.ndarray]
    """Bound and held-out error against seconds, as far as the model has them."""


def format_table(rows: list[Row]) -> str:
    """The table as aligned text."""
    lines = [
        [
            "model",
            "sees",
            "test RMSE",
            "test log density",
            "in 95 % intervals",
            "ELBO",
            "steps",
            "seconds",
        ]
    ]
    for row in rows:
        got = row.score
        lines.append(
            [
                row.model,
                row.sees,
                f"{got.rmse:.4f}",
                f"{got.log_density:.3f}",
                f"{100.0 * got.coverage:.1f} %",
                "" if row.elbo is None else f"{row.elbo:,.0f}",
                "" if row.steps is None else str(row.steps),
                f"{row.seconds:.1f}",
            ]
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    cells = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    head, *body = ["  ".join(line) for line in cells]
    return "\n".join([head, "-" * len(head), *body])


def write_results(outcomes: list[Outcome], settings: dict, path: Path) -> None:
    """The table, the traces and what they depend on, as JSON."""
    record = {
        "versions": {"gpflow_decoupled": gpflow_decoupled.__version__, "gpflow": gpflow.__version__}
        | {"tensorflow": tf.__version__},
        "settings": settings,
        "rows": [asdict(outcome.row) for outcome in outcomes],
        "traces": {
            o.row.model: {k: values.tolist() for k, values in o.trace.items()} for o in outcomes
        },
    }
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
