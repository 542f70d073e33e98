"""Means over splits from journals of the suite `regression`, as a table or as a picture.

A report of that suite has one setting; this joins runs of several, say of other budgets or of
another environment. Journals hold no machine names, so only join those of one machine. Example::

    python -m benchmarks.overview benchmarks/results/regression.jsonl --budget 60 \\
        --models neighbours-30-auto trees-1000
    python -m benchmarks.overview benchmarks/results/regression.jsonl --tasks kin40k houses \\
        --models neighbours-30-auto gpflow-300 --names "gpflow-300=GPflow, SVGP" \\
        --split 0 --picture docs/pictures/neighbours.png

Splits differ in how hard they are. Where some models have one split only, `--split` compares all
on that one, and bars still tell how much a result varies over the splits that there are."""

from __future__ import annotations

__all__ = ["Point", "picture", "points", "renamed", "table"]

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .harness.metrics import METRICS, standard_error
from .harness.pictures import Figure, Panel, Series, draw
from .harness.records import Snapshot
from .page import put
from .suites.regression.runs import Run

_SHOWN = ("rmse", "log_density")


class Point(NamedTuple):
    """A model on a data set after a budget: means over splits, and standard errors."""

    task: str
    model: str
    library: str
    budget: float
    seconds: float
    means: dict[str, float]
    errors: dict[str, float]
    """0 for a single split"""
    splits: int


def points(journals: Iterable[str], seed: int = 0, split: int | None = None) -> list[Point]:
    """The ends of all runs with metrics, by task, model and budget.

    :param journals: texts of journals. Of two lines of one split the later counts.
    :param seed: that of the lines to take.
    :param split: the one whose metrics stand for the means; standard errors stay.
    """
    found: dict[tuple[str, str, str, float], dict[int, Snapshot]] = {}
    for line in (line for text in journals for line in text.splitlines()):
        entry = json.loads(line)
        if entry["setting"]["seed"] != seed:
            continue
        for fields in entry["result"]:
            if fields.pop("part") != "seconds":
                continue
            run = Run(**fields)
            for budget in entry["setting"]["budgets"]:
                if run.at(budget).metrics:
                    key = (run.task, run.model, run.library, budget)
                    found.setdefault(key, {})[run.split] = run.at(budget)
    return [
        _point(key, ends, list(ends) if split is None else [split])
        for key, ends in sorted(found.items())
        if split is None or split in ends
    ]


def _point(
    key: tuple[str, str, str, float], ends: dict[int, Snapshot], shown: Sequence[int]
) -> Point:
    values = {
        name: {split: end.metrics[name] for split, end in ends.items()}
        for name in ("rmse", "log_density", "coverage")
    }
    return Point(
        *key,
        float(np.mean([ends[split].seconds for split in shown])),
        {name: float(np.mean([of[split] for split in shown])) for name, of in values.items()},
        {name: standard_error(list(of.values())) for name, of in values.items()},
        len(ends),
    )


def table(
    found: Sequence[Point], tasks: Sequence[str], models: Sequence[str], budget: float | None
) -> str:
    """A row per task and a column per model: RMSE / log density with its standard error where
    there are several splits, coverage in brackets, and seconds.

    :param budget: the one to show; None: the largest that a model has.
    """
    lines = [["", *models], ["---"] * (1 + len(models))]
    for task in tasks:
        lines.append([task, *(_cell(found, task, model, budget) for model in models)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(found: Sequence[Point], task: str, model: str, budget: float | None) -> str:
    here = [one for one in found if (one.task, one.model) == (task, model)]
    here = [one for one in here if budget in (None, one.budget)]
    if not here:
        return ""
    one = max(here, key=lambda one: one.budget)
    error = f" ± {one.errors['log_density']:.3f}" if one.splits > 1 else ""
    rmse = one.means["rmse"]
    return (
        f"{rmse:.{3 if rmse >= 0.01 else 4}f} / {one.means['log_density']:.3f}{error}"
        f" ({one.means['coverage']:.3f}), {one.seconds:.0f} s"
    )


def picture(found: Sequence[Point], tasks: Sequence[str], models: Sequence[str]) -> Figure:
    """RMSE and log density against seconds, a panel for each and task; bars are standard errors
    over splits.
    """
    panels = [
        Panel(
            task,
            "seconds of training",
            METRICS[name].label,
            [
                Series(
                    _label(here[0]),
                    [one.seconds for one in here],
                    [one.means[name] for one in here],
                    rise=[one.errors[name] if one.splits > 1 else np.nan for one in here],
                )
                for model in models
                if (here := [one for one in found if (one.task, one.model) == (task, model)])
            ],
            "x",
        )
        for task in tasks
        for name in _SHOWN
    ]
    return Figure("", "", panels, columns=len(_SHOWN), marker="o", dpi=110, legend_columns=3)


def renamed(found: Iterable[Point], names: Mapping[str, str]) -> list[Point]:
    """Points whose models have names for readers. Models of one name become one series."""
    return [
        one._replace(model=names[one.model], library="gpflow_decoupled")
        if one.model in names
        else one
        for one in found
    ]


def _label(one: Point) -> str:
    """The model, with its library where the name does not tell it."""
    known = one.library == "gpflow_decoupled" or one.model.startswith(one.library)
    return one.model if known else f"{one.model} ({one.library})"


def main() -> None:
    """Read the journals that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("journals", type=Path, nargs="+", help="files NAME.jsonl")
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--names", nargs="+", default=[], help="MODEL=NAME, to show that name")
    parser.add_argument("--budget", type=float, help="default: the largest of each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", type=int, help="show its metrics in the place of means")
    parser.add_argument("--picture", type=Path, help="PNG to write; without it, print a table")
    parser.add_argument("--page", type=Path, help="put the table into this page")
    options = parser.parse_args()
    journals = [path.read_text(encoding="utf-8") for path in options.journals]
    names = dict(pair.split("=", 1) for pair in options.names)
    found = renamed(points(journals, options.seed, options.split), names)
    tasks = options.tasks or list(dict.fromkeys(one.task for one in found))
    wanted = options.models or [one.model for one in found]
    models = list(dict.fromkeys(names.get(model, model) for model in wanted))
    if options.picture:
        figure = picture(found, tasks, models)._replace(name=options.picture.stem)
        draw(figure, options.picture.parent)
        return
    text = table(found, tasks, models, options.budget)
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(put(page, [text]), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
