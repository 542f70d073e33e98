"""Table 1 of Salimbeni et al. (2018) in small: the paper's models after equal numbers of steps on
many data sets.

As in the paper, the decoupled models share their covariance points with the smaller coupled one,
and `-adam` trains q by Adam like everything else. SOLVE-GP and GPflow's SVGP, with natural
gradients, stand beside them, and GPyTorch's and GPJax's where they are installed."""

from __future__ import annotations

__all__ = ["PART", "add_arguments", "models", "section"]

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...harness.metrics import METRICS, average_ranks, standard_error
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.training import installed
from .runs import Run, cell, pieces, settings_of, trained

TASKS = (
    "kin40k",
    "protein",
    "elevators",
    "houses",
    "pumadyn32nm",
    "diamonds",
    "beijing_pm25",
    "keggundirected",
    "house16h",
    "bike",
    "power",
    "flights",
)
SHOWN = ("mae", "rmse", "log_density")


class Published(NamedTuple):
    """A column of the paper's Table 1: name, average rank by test MAE and its standard error."""

    name: str
    rank: float
    error: float


class Score(NamedTuple):
    """A model on a data set: each metric and the processor `seconds` and milliseconds of a step,
    `ms`, over its splits.
    """

    means: dict[str, float]
    errors: dict[str, float]
    """standard errors of the means; 0 for a single split"""
    note: str


def models(num_beta: int, num_gamma: int, num_coupled: int) -> dict[str, Published | None]:
    """Names of the models of the table, and what the paper found with sizes of 300, 700 and 400."""
    both = f"{num_beta}+{num_gamma}"
    return {
        f"coupled-{num_beta}-adam": Published("Coupled, 300", 6.083, 0.19),
        f"coupled-{num_beta}": Published("CoupledNat, 300", 5.0, 0.33),
        f"coupled-{num_coupled}-adam": Published("Coupled, 400", 3.75, 0.26),
        f"coupled-{num_coupled}": Published("CoupledNat, 400", 2.417, 0.31),
        f"orthogonal-{both}-adam": Published("Orth", 2.5, 0.47),
        f"orthogonal-{both}": Published("OrthNat", 1.833, 0.35),
        f"hybrid-{both}-adam": Published("Hybrid", 6.417, 0.23),
        f"decoupled-{both}-adam": Published("Decoupled", 8.0, 0.0),
        f"solve-{both}": None,
        f"gpflow-{num_beta}": None,
    }


def peers(num_beta: int, num_gamma: int) -> list[str]:
    """Names of the models of libraries that need not be installed."""
    return [f"gpytorch-{num_beta}", f"gpytorch-{num_beta}+{num_gamma}", f"gpjax-{num_beta}"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=3000, help="table, curves: of training")
    parser.add_argument(
        "--sizes",
        nargs=3,
        type=int,
        default=[90, 210, 120],
        metavar=("M_BETA", "M_GAMMA", "M_COUPLED"),
        help=(
            "table, curves: points of the decoupled models, and of the larger coupled one; in the"
            " paper 300 700 400"
        ),
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    names = options.models or [*models(*options.sizes), *installed(peers(*options.sizes[:2]))]
    return pieces(options, TASKS, names)


def _measure(options: argparse.Namespace, task: str, split: int, model: str) -> list[Run]:
    """Train one model for so many steps."""
    return [
        trained(
            options,
            settings_of(options, [options.steps], "steps"),
            [options.steps],
            task,
            split,
            model,
        )
    ]


def section(runs: Sequence[Run], options: argparse.Namespace) -> Section:
    """The summary beside the paper's ranks, and a table per data set."""
    scores = _scores(runs)
    names = list(dict.fromkeys(model for _, model in scores))
    whole = [
        t
        for t in dict.fromkeys(task for task, _ in scores)
        if all((t, name) in scores for name in names)
    ]
    tables = [_task(task, scores) for task in dict.fromkeys(task for task, _ in scores)]
    if not whole:
        return Section(tables, [], [])
    values = {
        metric: np.array([[scores[task, name].means[metric] for name in names] for task in whole])
        for metric in SHOWN
    }
    published = models(*options.sizes)
    seconds = [np.mean([scores[task, name].means["seconds"] for task in whole]) for name in names]
    summary = _summary(names, values, published, seconds)
    summary = summary._replace(
        title=f"Table 1 in small: {len(whole)} data sets, {options.steps} steps"
    )
    notes = [
        (
            "Every model takes the same number of steps on minibatches of the same size from the"
            " same kernel, noise and inducing points, learns all of them, and lets its step sizes"
            " fall over the last fifth. Errors are those of standardised outputs, training"
            " statistics only; where there are several splits, means over them and standard errors."
        ),
        (
            "-adam: q by Adam with everything else; otherwise q(u) by natural gradients and mean"
            " coefficients by Adam. Mean coefficients are whitened, which the paper's were not."
            " Hybrid and decoupled use ordinary gradients, as there."
        ),
        (
            "Ranks: 1 is the best; standard errors in brackets. The paper's eight are ranked among"
            " themselves, and then all. The paper: Salimbeni et al. 2018, Table 1, 12 data sets"
            " with 300, 300 + 700 and 400 points."
        ),
        (
            "gpytorch, gpjax: by Adam, at step sizes that stay; GPyTorch in float32. With mean"
            " points GPyTorch's objective is no lower bound."
        ),
        (
            "Seconds and milliseconds are of the processor, without compilation, k-means and"
            " evaluation."
        ),
    ]
    return Section([summary, *tables], [_figure(names, values, published)], notes)


def _scores(runs: Sequence[Run]) -> dict[tuple[str, str], Score]:
    """(task, model) -> means over splits, their standard errors, and the notes."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for record in runs:
        groups.setdefault((record.task, record.model), []).append(record)
    scores: dict[tuple[str, str], Score] = {}
    for key, group in groups.items():
        ends = [record.snapshots[-1] for record in group]
        values = {
            name: [end.metrics.get(name, np.nan) for end in ends] for name in (*SHOWN, "elbo")
        }
        values["seconds"] = [end.cpu_seconds for end in ends]
        values["ms"] = [record.processor_ms for record in group]
        scores[key] = Score(
            {name: float(np.mean(column)) for name, column in values.items()},
            {name: standard_error(column) for name, column in values.items()},
            "; ".join(record.note for record in group if record.note),
        )
    return scores


def _task(task: str, scores: dict[tuple[str, str], Score]) -> Table:
    here = {model: score for (name, model), score in scores.items() if name == task}
    best = {
        name: METRICS[name].best([one.means[name] for one in here.values()])
        for name in (*SHOWN, "elbo")
    }
    rows = [
        [
            model,
            *(
                cell(name, one.means[name], one.means[name] == best[name], one.errors[name])
                for name in best
            ),
            f"{one.means['seconds']:.1f}",
            f"{one.means['ms']:.1f}",
            one.note,
        ]
        for model, one in here.items()
    ]
    return Table(task, ["model", *best, "s", "ms per step", "note"], rows)


def _summary(
    names: list[str],
    values: dict[str, np.ndarray],
    published: dict[str, Published | None],
    seconds: Sequence[float],
) -> Table:
    """A row per model as in the paper: mean and median MAE and average ranks, beside the paper's
    ranks.
    """
    header = ["model", "MAE: mean", "median", "rank of the paper's eight", "the paper's rank"]
    header += ["rank of all: MAE", "RMSE", "log density", "s"]
    eight, of_eight = _eight(names, values["mae"], published)
    of_all = [
        [_rank(*pair) for pair in zip(*average_ranks(values[name], METRICS[name]))]
        for name in SHOWN
    ]
    rows = []
    for place, name in enumerate(names):
        paper = published.get(name)
        mae = values["mae"][:, place]
        rows.append(
            [
                name,
                cell("mae", float(np.mean(mae))),
                cell("mae", float(np.median(mae))),
                _rank(*of_eight[eight.index(name)]) if name in eight else "",
                f"{_rank(paper.rank, paper.error)} {paper.name}" if paper else "",
                *(column[place] for column in of_all),
                f"{seconds[place]:.1f}",
            ]
        )
    return Table("", header, rows)


def _eight(
    names: list[str], mae: np.ndarray, published: dict[str, Published | None]
) -> tuple[list[str], list[tuple[float, float]]]:
    """The models of the paper, and their ranks among themselves."""
    chosen = [name for name in names if published.get(name)]
    if not chosen:
        return [], []
    ranks, errors = average_ranks(mae[:, [names.index(name) for name in chosen]], METRICS["mae"])
    return chosen, list(zip(ranks, errors))


def _rank(mean: float, error: float) -> str:
    return f"{mean:.2f} ({error:.2f})"


def _figure(
    names: list[str], values: dict[str, np.ndarray], published: dict[str, Published | None]
) -> Figure:
    """Average ranks as points with bars: by MAE beside those of the paper, and by log density."""
    eight, ranks = _eight(names, values["mae"], published)
    panels = []
    if eight:
        upwards = eight[::-1]
        papers = [published[name] for name in upwards]
        ours = Series(
            "this run",
            *_points(upwards, ranks[::-1]),
            alone=True,
            spread=[error for _, error in ranks[::-1]],
        )
        theirs = Series(
            "Salimbeni et al. 2018",
            [paper.rank for paper in papers if paper],
            upwards,
            alone=True,
            spread=[paper.error for paper in papers if paper],
        )
        panels.append(Panel("MAE, the paper's eight", "average rank (1: best)", "", [ours, theirs]))
    means, errors = average_ranks(values["log_density"], METRICS["log_density"])
    pairs = list(zip(means, errors))[::-1]
    spread = [error for _, error in pairs]
    series = Series("this run", *_points(names[::-1], pairs), alone=True, spread=spread)
    panels.append(Panel("Log density, all", "average rank (1: best)", "", [series]))
    return Figure(
        "regression", "Average ranks over data sets with standard errors.", panels, columns=2
    )


def _points(
    names: list[str], pairs: Sequence[tuple[float, float]]
) -> tuple[list[float], list[str]]:
    return [mean for mean, _ in pairs], names


PART = Part(Run, _pieces, _measure, section)
