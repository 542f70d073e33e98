"""What the parts of the regression suite share: one run of a model on a split, and cells of
tables.
"""

from __future__ import annotations

__all__ = ["Run", "cell", "pieces", "regression_data", "settings_of", "trained"]

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product

from ...harness.data import Data, existing_splits, load
from ...harness.metrics import table_cell
from ...harness.records import Record
from ...libraries.models import Settings, parse
from ...libraries.training import train

EMBEDDED_TASKS = ("synthetic", "diabetes")


@dataclass
class Run(Record):
    """The record of one model on one split of a task."""

    split: int = 0
    timed: dict[str, float] = field(default_factory=dict)
    """part `clock`: processor milliseconds of a step of each model that was timed beforehand"""


def pieces(options: argparse.Namespace, tasks: Sequence[str], models: Iterable[str]) -> list[tuple]:
    """(task, split, model) for the tasks and models that the options name, else for those that are
    given, and existing splits.

    :param tasks: those of a folder of data; without one they are the embedded ones.
    """
    named = options.tasks or (tasks if options.data else EMBEDDED_TASKS)
    models = list(models)
    return [
        piece
        for task in named
        for piece in product([task], existing_splits(task, options.splits, options.data), models)
    ]


def regression_data(task: str, split: int, folder: str | None) -> Data:
    """One split of a data set with real outputs.

    :raises ValueError: if the outputs are stored as integers, which `load` takes for class labels.
    """
    data = load(task, split, folder)
    if data.has_integers:
        raise ValueError(
            f"Y of data set {task!r} is stored as integers, which are read as class labels and not"
            " standardised. Store it as float64 to use the set as a regression."
        )
    return data


def settings_of(options: argparse.Namespace, budgets: Sequence[float], unit: str) -> Settings:
    """The settings of training that the command line gives."""
    return Settings(
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        natural_gradient=options.natural_gradient,
        anneal=options.anneal,
        seed=options.seed,
        budgets=tuple(budgets),
        unit=unit,
        dtype="float32" if options.float32 else "float64",
    )


def trained(
    options: argparse.Namespace,
    settings: Settings,
    targets: Sequence[float],
    task: str,
    split: int,
    model: str,
) -> Run:
    """Train one model on one split, until the last of `targets`."""
    record = train(parse(model), regression_data(task, split, options.data), targets, settings)
    return Run(**asdict(record), split=split)


def cell(name: str, value: float, bold: bool = False, error: float = 0.0) -> str:
    """A metric as a cell of a table, with its standard error where that is not zero; empty where
    the metric is NaN.
    """
    return table_cell(value, 0 if name == "elbo" else 4, bold, error)
