"""Passes over all documents, or minibatches."""

from __future__ import annotations

__all__ = [
    "History", "Limits", "Local", "Progress", "Settings", "Shared", "batch_update",
    "check_prior", "check_settings", "check_whole", "fit_batch", "fit_stochastic", "local_step",
    "minibatch_step", "start_topics", "stochastic_update", "topics_bound",
    "with_best_topic_prior",
]  # fmt: skip

import time
from collections.abc import Sequence
from numbers import Integral, Real
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from tqdm.auto import tqdm

from ..errors import DataError, check_option
from ..summaries import short_repr
from .dirichlet import best_symmetric_prior, expected_log, minus_kl
from .documents import (
    Block,
    PerDocument,
    TopicWeights,
    Words,
    chosen,
    copied,
    put_rows,
    rows_of,
    split_into_blocks,
    topic_weights,
)
from .proportions import Proportions

# ---
# Settings of topic models, and their checks.


METHODS = ("batch", "stochastic")
STARTS = ("documents", "random")


class Settings(Protocol):
    """Constructor arguments of all topic models; see `LatentDirichletAllocation`."""

    num_topics: int
    topic_prior: npt.ArrayLike | None
    learn_topic_prior: bool
    method: str
    max_passes: int
    tolerance: float
    fresh_passes: int
    max_local_steps: int
    local_tolerance: float
    start: str
    batch_size: int
    delay: float
    forgetting_rate: float
    num_documents: int | None
    seed: int
    progress: bool


def check_settings(settings: Settings) -> None:
    """Check the arguments that all topic models share."""
    check_option("method", settings.method, METHODS)
    check_option("start", settings.start, STARTS)
    for name, least in (
        ("num_topics", 1),
        ("max_passes", 1),
        ("fresh_passes", 0),
        ("max_local_steps", 1),
        ("batch_size", 1),
    ):
        check_whole(name, getattr(settings, name), least)
    if settings.num_documents is not None:
        check_whole("num_documents", settings.num_documents, 1)
    for name in ("tolerance", "local_tolerance", "delay"):
        _check_number(
            name, getattr(settings, name), 0.0, np.inf, "a number of at least 0", closed=True
        )
    text = "a number in (0.5, 1], without which the steps do not converge"
    _check_number("forgetting_rate", settings.forgetting_rate, 0.5, 1.0, text, closed=False)


def check_prior(name: str, value: npt.ArrayLike | None, size: int, default: float) -> np.ndarray:
    """Return a prior, a number, an array [size] or None for the default, as an array [size]."""
    try:
        prior = np.asarray(default if value is None else value, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}={short_repr(value)} must be a number or an array: {error}."
        ) from error
    if prior.shape not in ((), (size,)):
        raise DataError(
            f"{name} has shape {prior.shape}; it must be a number or have shape ({size},)."
        )
    if not (np.isfinite(prior) & (prior > 0.0)).all():
        raise DataError(f"{name} must be finite and above 0; it is {short_repr(value)}.")
    return np.full(size, prior)


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `DataError` unless `value` is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{name}={short_repr(value)} must be a whole number of at least {least}.")


def _check_number(
    name: str, value: object, low: float, high: float, text: str, closed: bool
) -> None:
    number = float(value) if isinstance(value, Real) else np.nan
    if not (low <= number if closed else low < number) or not number <= high or np.isinf(number):
        raise DataError(f"{name}={short_repr(value)} must be {text}.")


# ---
# The record of a fit.


class History:
    """Passes, seconds and bounds of a fit; a context manager that closes the progress bar."""

    def __init__(self, passes: int, show: bool) -> None:
        self._rows: list[tuple[float, float, float]] = []
        self._began = time.perf_counter()
        self._bar = tqdm(total=passes, disable=not show, unit="pass")

    def append(self, passes: float, bound: float) -> None:
        """Record the passes so far and the bound in nats."""
        self._rows.append((passes, time.perf_counter() - self._began, bound))
        self._bar.update(passes - self._bar.n)
        self._bar.set_postfix(bound=f"{bound:.6g}")

    def has_settled(self, tolerance: float) -> bool:
        """True if the last pass raised the bound by less than `tolerance` times its size."""
        if len(self._rows) < 2:
            return False
        before, now = self._rows[-2][2], self._rows[-1][2]
        return now - before < tolerance * abs(now)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays "pass", "seconds" (wall clock) and "bound" (nats), one entry per pass."""
        columns = np.array(self._rows, dtype=float).reshape(-1, 3).T
        return dict(zip(("pass", "seconds", "bound"), columns))

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()


# ---
# The local step for all documents.


State = TypeVar("State", bound=PerDocument)


class Limits(NamedTuple):
    """Stopping rule of a document's local step."""

    tolerance: float
    """Change of a topic's expected number of words, averaged over topics."""
    max_steps: int


class Local(NamedTuple):
    """The result of a local step."""

    state: PerDocument
    """Parameters of q(theta_d), arrays [D, ...]."""
    bounds: np.ndarray
    """F_d of each document [D], nats."""
    statistics: np.ndarray
    """sum_d n_dw phi_dwk [K, V]."""


def local_step(
    counts: sp.csr_matrix,
    blocks: Sequence[Block],
    topics: TopicWeights,
    proportions: Proportions[State],
    state: State,
    limits: Limits,
    fallback: State | None = None,
) -> Local:
    """Move q(theta_d) of all documents to its optimum at fixed topics.

    A step costs the non-zero counts times K. The assignments phi [D, V, K] are never stored, only
    sums. States are arrays [D, ...]; documents take `fallback` where their bound is better there.
    """
    state = copied(state)
    bounds = np.empty(counts.shape[0])
    weights = np.empty((counts.shape[0], topics.weights.shape[1]), dtype=counts.dtype)
    ratios = np.empty_like(counts.data)
    for block in blocks:
        words = Words.gather(block, topics)
        found = proportions.converge(words, rows_of(state, block.rows), *limits)
        evaluation = proportions.evaluate(words, found)
        if fallback is not None:
            other = rows_of(fallback, block.rows)
            other_evaluation = proportions.evaluate(words, other)
            better = evaluation.bound >= other_evaluation.bound
            found, evaluation = (
                chosen(better, found, other),
                chosen(better, evaluation, other_evaluation),
            )
        put_rows(state, block.rows, found)
        bounds[block.rows], weights[block.rows] = evaluation.bound, evaluation.weights
        ratios[block.cells] = evaluation.ratios[block.counts > 0]
    shares = sp.csr_matrix((ratios, counts.indices, counts.indptr), shape=counts.shape)
    return Local(state, bounds, (topics.weights * (shares.T @ weights)).T)  # (T2)


# ---
# Topics and priors, and their updates.


class Shared(NamedTuple):
    """The global variables of a topic model."""

    components: np.ndarray
    """lambda [K, V] of q(beta_k) = Dir(lambda_k)."""
    topic_prior: np.ndarray
    """eta [V]."""
    proportions: Proportions[Any]
    """Prior of theta_d, and its local step; the type of its states depends on the model."""


def start_topics(counts: sp.csr_matrix, num_topics: int, start: str, seed: int) -> np.ndarray:
    """The topics' parameters lambda [K, V] before the first pass, from counts [D, V].

    :param start: "documents" for one document's counts per topic plus Gamma(100, 1/100) draws,
        "random" for draws alone.
    """
    generator = np.random.default_rng(seed)
    if start == "random":
        return generator.gamma(100.0, 0.01, (num_topics, counts.shape[1])).astype(counts.dtype)
    rows = generator.permutation(counts.shape[0])[:num_topics]
    # fewer documents than topics: some are used twice, and the draws make their topics differ
    if len(rows) < num_topics:
        rows = np.resize(rows, num_topics)
    noise = generator.gamma(100.0, 0.01, (num_topics, counts.shape[1]))
    return (counts[rows].toarray() + noise).astype(counts.dtype)


def batch_update(shared: Shared, local: Local, learn_topics: bool) -> Shared:
    """The best topics and priors for the local states of all documents."""
    components = (shared.topic_prior + local.statistics).astype(local.statistics.dtype)  # (T2)
    shared = Shared(components, shared.topic_prior, shared.proportions.learned(local.state))
    return with_best_topic_prior(shared) if learn_topics else shared


def with_best_topic_prior(shared: Shared) -> Shared:
    """The same topics with their best symmetric eta."""
    best = best_symmetric_prior(
        float(shared.topic_prior.mean()), expected_log(shared.components.astype(float))
    )
    return shared._replace(topic_prior=np.full_like(shared.topic_prior, best))


def stochastic_update(
    shared: Shared, local: Local, columns: np.ndarray, scale: float, rho: float
) -> Shared:
    """Make a natural-gradient step from a minibatch.

    :param columns: words [V'] of the statistics.
    :param scale: documents of the corpus per document of the minibatch.
    :param rho: in (0, 1].
    """
    components = (1.0 - rho) * shared.components + (rho * shared.topic_prior).astype(
        shared.components.dtype
    )  # (T4)
    components[:, columns] += rho * scale * local.statistics  # (T4)
    proportions = shared.proportions.learned(local.state, rho, scale * len(local.bounds))
    return shared._replace(components=components, proportions=proportions)


def topics_bound(shared: Shared) -> float:
    """The bound's terms without a document, in nats: topics, and priors of learned priors."""
    topics = float(minus_kl(shared.topic_prior, shared.components.astype(float)).sum())  # (T3)
    return topics + shared.proportions.log_prior


# ---


class Progress(NamedTuple):
    """The state of a fit between passes."""

    shared: Shared
    updates: int = 0
    """Stochastic steps made."""
    seen: int = 0
    """Documents given to `fit` and `partial_fit`."""


def fit_batch(
    settings: Settings, counts: sp.csr_matrix, begun: Progress, history: History
) -> tuple[Progress, PerDocument, str]:
    """Update on all documents (T2) until the bound settles.

    Counts are [D, V]. In the first `fresh_passes` each document also starts afresh and keeps the
    better result.
    """
    shared, limits = begun.shared, Limits(settings.local_tolerance, settings.max_local_steps)
    blocks = split_into_blocks(counts, settings.num_topics, shared.proportions.numbers_per_document)
    fresh = shared.proportions.start(counts.shape[0], counts.dtype)
    local = local_step(
        counts, blocks, topic_weights(shared.components), shared.proportions, fresh, limits
    )
    for number in range(1, settings.max_passes + 1):
        shared = batch_update(shared, local, settings.learn_topic_prior)
        topics = topic_weights(shared.components)
        states = (fresh, local.state) if number <= settings.fresh_passes else (local.state, None)
        local = local_step(counts, blocks, topics, shared.proportions, states[0], limits, states[1])
        history.append(number, float(local.bounds.sum()) + topics_bound(shared))
        if number > settings.fresh_passes and history.has_settled(settings.tolerance):
            return Progress(shared, seen=counts.shape[0]), local.state, "converged"
    return Progress(shared, seen=counts.shape[0]), local.state, "max_passes"


def fit_stochastic(
    settings: Settings, counts: sp.csr_matrix, begun: Progress, history: History
) -> tuple[Progress, PerDocument, str]:
    """Step (T4) on shuffled minibatches, `max_passes` times through all documents.

    Arguments and result as `fit_batch`.
    """
    # A document's local step starts at its last result.
    generator, now = np.random.default_rng(settings.seed), begun
    state = now.shared.proportions.start(counts.shape[0], counts.dtype)
    bounds = np.zeros(counts.shape[0])
    for number in range(1, settings.max_passes + 1):
        order = generator.permutation(counts.shape[0])
        for first in range(0, len(order), settings.batch_size):
            rows = order[first : first + settings.batch_size]
            part, scale = rows_of(state, rows), counts.shape[0] / len(rows)
            shared, local = minibatch_step(settings, now, counts[rows], part, scale)
            now, bounds[rows] = Progress(shared, now.updates + 1, counts.shape[0]), local.bounds
            put_rows(state, rows, local.state)
        if settings.learn_topic_prior:
            now = now._replace(shared=with_best_topic_prior(now.shared))
        history.append(number, float(bounds.sum()) + topics_bound(now.shared))
    return now, state, "max_passes"


def minibatch_step(
    settings: Settings, now: Progress, counts: sp.csr_matrix, state: PerDocument, scale: float
) -> tuple[Shared, Local]:
    """Make one step (T4) on a minibatch.

    :param counts: of the minibatch [B, V]; `state`, the start of the local step, arrays [B, ...].
    """
    # the local step sees only the words that occur, so that its cost does not grow with the
    # vocabulary
    columns, inverse = np.unique(counts.indices, return_inverse=True)
    part = sp.csr_matrix(
        (counts.data, inverse.astype(counts.indptr.dtype), counts.indptr),
        (counts.shape[0], len(columns)),
    )
    proportions = now.shared.proportions
    blocks = split_into_blocks(part, settings.num_topics, proportions.numbers_per_document)
    limits = Limits(settings.local_tolerance, settings.max_local_steps)
    topics = topic_weights(now.shared.components, columns)
    local = local_step(part, blocks, topics, proportions, state, limits)
    rho = (now.updates + 1.0 + settings.delay) ** -settings.forgetting_rate  # (T4)
    return stochastic_update(now.shared, local, columns, scale, rho), local
