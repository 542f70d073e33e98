"""What the parts of the regression suite share: one run of a model on a split, and cells of tables."""

from __future__ import annotations

__all__ = ["cell", "installed", "records", "settings_of", "train"]

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from . import gpjax_peer, gpytorch_peer
from .data import load
from .models import Settings, parse, precision
from .ours import train_ours
from .peers import train_gpflow
from .records import Record

_TRAINERS = {"gpflow": train_gpflow, "gpytorch": gpytorch_peer.train_gpytorch, "gpjax": gpjax_peer.train_gpjax}
_AVAILABLE = {"gpytorch": gpytorch_peer.AVAILABLE, "gpjax": gpjax_peer.AVAILABLE}


def installed(models: Iterable[str]) -> list[str]:
    """Those of the names whose library is there: optional peers are left out where they are not."""
    return [name for name in models if _AVAILABLE.get(parse(name).library, True)]


def settings_of(options: argparse.Namespace, budgets: Sequence[float], unit: str) -> Settings:
    """From the command line."""
    return Settings(
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        seed=options.seed,
        budgets=tuple(budgets),
        unit=unit,
        dtype="float32" if options.float32 else "float64",
    )


def train(
    options: argparse.Namespace, settings: Settings, targets: Sequence[float], task: str, split: int, model: str
) -> dict[str, Any]:
    """The `Record` of one model on one split, and the split, as JSON can hold it."""
    spec, data = parse(model), load(task, split, options.data)
    if spec.library == "gpflow_decoupled" and settings.dtype != "float64":
        with precision(settings.dtype):
            record = train_ours(spec, data.cast(settings.dtype), targets, settings)
    else:
        record = _TRAINERS.get(spec.library, train_ours)(spec, data, targets, settings)
    return {"split": split, **asdict(record)}


def records(results: Iterable[dict[str, Any]]) -> list[Record]:
    """Of results of `train`."""
    return [Record.read({key: value for key, value in one.items() if key != "split"}) for one in results]


def cell(name: str, value: float, bold: bool = False) -> str:
    """A metric as a cell of a table; empty where there is none."""
    text = "" if value != value else f"{value:.0f}" if name == "elbo" else f"{value:.4f}"
    return f"**{text}**" if bold else text
