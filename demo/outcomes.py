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
class Row:
    """A line of the table. Errors in grey levels from 0 to 1, densities in nats of the same."""

    model: str
    mean_points: int
    rmse: float
    log_density: float
    elbo: float
    steps: int
    ms_a_step: float


@dataclass
class Outcome:
    """What one model left behind."""

    row: Row
    mean: np.ndarray
    """[H, W], grey levels."""
    std: np.ndarray
    """[H, W], of the brightness without noise, grey levels."""
    noise: float
    """Standard deviation of the noise, grey levels."""
    trace: dict[str, np.ndarray]
    """Bound and held-out error against seconds."""


def format_table(rows: list[Row], covariance_points: int) -> str:
    """The table as aligned text."""
    lines = [
        [
            "model",
            "points: mean / cov",
            "test RMSE",
            "test log density",
            "ELBO",
            "steps",
            "ms per step",
        ]
    ]
    for row in rows:
        points, numbers = (
            f"{row.mean_points} / {covariance_points}",
            f"{row.rmse:.4f} {row.log_density:.3f}",
        )
        last = f"{row.elbo:,.0f} {row.steps} {row.ms_a_step:.1f}"
        lines.append([row.model, points, *numbers.split(), *last.split()])
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
