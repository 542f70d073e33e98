"""Topic models on held-out words: LDA in batch and on minibatches, correlated topics, and scikit-learn's LDA.

All see the same documents, priors and number of topics. A test document gives half of its words to find its proportions;
the other half is scored by log sum_k E theta_k E beta_kw, whoever fitted. Bounds are those of each library, of the same
definition (T3).
"""

from __future__ import annotations

__all__ = ["Outcome", "add_arguments", "run"]

import argparse
import re
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .journal import Journal, setting_of
from .report import Figure, Panel, Report, Series, Table, write
from .topic_corpora import corpus
from .topic_methods import METHODS, Fitted, fit

NOT_DRAWN = ("LDA, float32", "LDA, random start")
"""In the table alone: the first looks like LDA, and eight colours are as many as can be told apart."""


class Outcome(NamedTuple):
    """One method on one corpus."""

    task: str
    method: str
    passes: int
    seconds: float
    """of the processor, in the fit"""
    bound: float
    """nats a training word"""
    perplexity: float
    """of held-out words"""
    falls: int
    """passes in which the bound fell; -1 where it is not recorded"""
    bounds: list[float]
    """after each pass, nats a word, where the method records them"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", default=["text_ap"], help="text_ap, text_reuters395 or generated")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--prior", type=float, default=0.1, help="alpha and eta where they are not learned")
    parser.add_argument("--passes", type=int, default=100, help="at most")
    parser.add_argument("--test-share", type=float, default=0.1, help="of the documents")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Fit all methods to each corpus, and write the report as they come."""
    read = lru_cache(maxsize=1)(lambda task: corpus(task, options.test_share, options.seed, options.data))

    def fitted(task: str, method: str) -> dict[str, Any]:
        data = read(task)
        found = fit(method, data, options)
        outcome = _outcome(task, method, found, data, (found.proportions(data.observed), found.topics))
        pairs = None if found.correlations is None else _pairs(task, method, found, data.vocabulary)._asdict()
        return {"outcome": outcome._asdict(), "pairs": pairs}

    def report(found: list[dict[str, Any]]) -> None:
        pairs = [Table(**one["pairs"]) for one in found if one["pairs"]]
        write(folder, _report([Outcome(**one["outcome"]) for one in found], pairs, command))

    journal = Journal(folder, "topics", setting_of(options, "tasks", "methods"), options.resume)
    found = journal.collect(list(product(options.tasks, options.methods)), fitted, report)
    return [one["outcome"] for one in found]


def _outcome(task: str, method: str, fitted: Fitted, data: Any, chances: tuple) -> Outcome:
    theta, beta = chances
    held, words = data.held_out, float(data.train.sum())
    rows = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    logs = np.log((theta[rows] * beta.T[held.indices]).sum(1))
    perplexity = float(np.exp(-(held.data @ logs) / held.sum()))
    bounds = [float(value) / words for value in fitted.bounds]
    falls = int(np.sum(np.diff(fitted.bounds) < -1e-9 * abs(fitted.bounds[-1]))) if bounds and fitted.monotone else -1
    return Outcome(task, method, fitted.passes, fitted.seconds, fitted.bound / words, perplexity, falls, bounds)


def _panels(task: str, outcomes: list[Outcome]) -> list[Panel]:
    """Perplexity against time, one point a fit, one label a method; the bound against passes."""
    families: dict[str, list[Outcome]] = {}
    for one in outcomes:
        families.setdefault(re.sub(r", \d+$", "", one.method), []).append(one)
    points, lines = [], []
    for name, family in families.items():
        seconds, values = [one.seconds for one in family], [one.perplexity for one in family]
        points.append(Series(name, seconds, values, "scikit" in name, alone=len(family) == 1))
        bounds = max((one.bounds for one in family), key=len)
        lines += [Series(name, range(1, len(bounds) + 1), bounds)] if len(bounds) > 1 else []
    return [
        Panel(task, "processor seconds of the fit", "held-out perplexity", points, log="x"),
        Panel(f"{task}: bound", "passes", "nats a training word", lines, log="x"),
    ]


def _pairs(task: str, method: str, fitted: Fitted, vocabulary: np.ndarray) -> Table:
    """The three pairs of topics that go together most, and the three that avoid each other most."""
    K = len(fitted.correlations)
    order = [(fitted.correlations[i, j], i, j) for i in range(K) for j in range(i)]
    order.sort()
    names = [" ".join(vocabulary[np.argsort(-row)[:6]]) for row in fitted.topics]
    chosen = order[::-1][:3] + order[:3]
    rows = [[f"{value:.2f}", names[i], names[j]] for value, i, j in chosen]
    return Table(f"{task}, {method}: topics that go together, and that do not", ["correlation", "topic", "topic"], rows)


def _report(outcomes: list[Outcome], pairs: list[Table], command: str) -> Report:
    tables, panels = [], []
    for task in dict.fromkeys(one.task for one in outcomes):
        mine = [one for one in outcomes if one.task == task]
        header = ["method", "passes", "seconds", "bound, nats a word", "held-out perplexity", "passes that lost"]
        rows = [
            [
                one.method,
                str(one.passes),
                f"{one.seconds:.1f}",
                f"{one.bound:.4f}",
                f"{one.perplexity:.1f}",
                "" if one.falls < 0 else str(one.falls),
            ]
            for one in mine
        ]
        tables.append(Table(f"{task}: training documents, held-out words", header, rows))
        panels += _panels(task, [one for one in mine if one.method not in NOT_DRAWN])
    notes = [
        "Seconds of the processor on one thread. Perplexity of words held out from test documents, lower is better.",
        "Bounds of different models, or with learned priors, are bounds on different evidences.",
        "A stochastic method's bound a pass is an estimate from its minibatches; the table has the bound of the result.",
    ]
    figure = Figure("topics", "Held-out perplexity against time; the bound against passes.", panels, columns=2)
    data = [one._asdict() for one in outcomes]
    return Report("topics", "Topic models", command, data, tables + pairs, [figure], notes)
