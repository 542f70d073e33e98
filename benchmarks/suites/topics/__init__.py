"""Topic models on held-out words: LDA in batch and on minibatches, correlated topics, and
scikit-learn's LDA.

All methods see the same documents, priors and number of topics. Half of the words of a test
document serve to find its proportions theta; the other half is scored by log sum_k E theta_k E
beta_kw, whichever library was fitted. Bounds are those of each library, of the same definition
(T3).

- `corpora`: bags of words, read or generated; `methods`: the methods of both libraries;
- here: scores, the report, and the suite.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
import re
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .corpora import corpus
from .methods import METHODS, Fitted, fit

NOT_DRAWN = (
    "LDA, float32",
    "LDA, random start",
    "correlated, diagonal, prior",
    "correlated, gaussian, prior",
)
"""Methods that are in the table only: the first looks like LDA, and more than eight colours cannot
be told apart.
"""


class Outcome(NamedTuple):
    """One method on one corpus."""

    task: str
    method: str
    passes: int
    seconds: float
    """of the processor, for the fit"""
    bound: float
    """nats per training word"""
    perplexity: float
    """of held-out words"""
    falls: int
    """passes in which the bound fell; -1 where it is not recorded"""
    bounds: list[float]
    """after each pass, nats per word, where the method records them"""
    pairs: list[list[str]]
    """correlation and words of pairs of topics, where the method has correlations"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs="+", default=["text_ap"], help="text_ap, text_reuters395 or generated"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument(
        "--prior", type=float, default=0.1, help="alpha and eta where they are not learned"
    )
    parser.add_argument("--passes", type=int, default=100, help="at most")
    parser.add_argument("--test-share", type=float, default=0.1, help="of the documents")


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return list(product(options.tasks, options.methods))


_corpus = lru_cache(maxsize=1)(corpus)


def _measure(options: argparse.Namespace, task: str, method: str) -> list[Outcome]:
    """Fit one method to one corpus."""
    data = _corpus(task, options.test_share, options.seed, options.data)
    found = fit(method, data, options)
    theta, beta = found.proportions(data.observed), found.topics
    held, words = data.held_out, float(data.train.sum())
    rows = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    logs = np.log((theta[rows] * beta.T[held.indices]).sum(1))
    perplexity = float(np.exp(-(held.data @ logs) / held.sum()))
    bounds = [float(value) / words for value in found.bounds]
    falls = (
        int(np.sum(np.diff(found.bounds) < -1e-9 * abs(found.bounds[-1])))
        if bounds and found.monotone
        else -1
    )
    pairs = [] if found.correlations is None else _pairs(found, data.vocabulary)
    return [
        Outcome(
            task,
            method,
            found.passes,
            found.seconds,
            found.bound / words,
            perplexity,
            falls,
            bounds,
            pairs,
        )
    ]


def _panels(task: str, outcomes: list[Outcome]) -> list[Panel]:
    """Perplexity against time, a point per fit and a label per method; and the bound against
    passes.
    """
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
        Panel(f"{task}: bound", "passes", "nats per training word", lines, log="x"),
    ]


def _pairs(fitted: Fitted, vocabulary: np.ndarray) -> list[list[str]]:
    """The three pairs of topics that go together most, and the three that exclude each other most:
    correlation and words.
    """
    K = len(fitted.correlations)
    order = [(fitted.correlations[i, j], i, j) for i in range(K) for j in range(i)]
    order.sort()
    names = [" ".join(vocabulary[np.argsort(-row)[:6]]) for row in fitted.topics]
    return [[f"{value:.2f}", names[i], names[j]] for value, i, j in order[::-1][:3] + order[:3]]


def _section(outcomes: list[Outcome], _: argparse.Namespace) -> Section:
    """A table and two panels per corpus, and the topics that are correlated."""
    tables, panels = [], []
    for task in dict.fromkeys(one.task for one in outcomes):
        mine = [one for one in outcomes if one.task == task]
        header = [
            "method",
            "passes",
            "seconds",
            "bound, nats per word",
            "held-out perplexity",
            "passes with a lower bound",
        ]
        rows = [
            [
                one.method,
                *(
                    str(one.passes),
                    f"{one.seconds:.1f}",
                    f"{one.bound:.4f}",
                    f"{one.perplexity:.1f}",
                ),
                "" if one.falls < 0 else str(one.falls),
            ]
            for one in mine
        ]
        tables.append(Table(f"{task}: training documents, held-out words", header, rows))
        panels += _panels(task, [one for one in mine if one.method not in NOT_DRAWN])
    notes = [
        (
            "Seconds of the processor on one thread. Perplexity of words held out from test"
            " documents, lower is better."
        ),
        "Bounds of different models, or with learned priors, are bounds on different evidences.",
        (
            "After a pass of a stochastic method, the bound is an estimate from minibatches; the"
            " table has that of the result."
        ),
    ]
    figure = Figure(
        "topics", "Held-out perplexity against time; the bound against passes.", panels, columns=2
    )
    header = ["correlation", "topic", "topic"]
    title = "topics that go together, and that do not"
    tables += [
        Table(f"{one.task}, {one.method}: {title}", header, one.pairs)
        for one in outcomes
        if one.pairs
    ]
    return Section(tables, [figure], notes)


SUITE = Suite(
    "Topic models",
    {"topics": Part(Outcome, _pieces, _measure, _section)},
    _add_arguments,
    selecting=("tasks", "methods"),
)
