"""The methods of topic models."""

from __future__ import annotations

__all__ = ["Estimator", "TopicModel", "completion"]

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError, UnknownOptionError
from ..summaries import one_line
from .documents import Counts, check_counts, put_rows, split_into_blocks, topic_weights
from .fitting import (
    History,
    Limits,
    Local,
    Progress,
    Shared,
    check_prior,
    check_settings,
    check_whole,
    fit_batch,
    fit_stochastic,
    local_step,
    minibatch_step,
    start_topics,
    topics_bound,
    with_best_topic_prior,
)
from .proportions import Proportions

# ---
# Scores on held-out words.


_CELLS = 1 << 14  # counts at a time


def completion(proportions: np.ndarray, topics: np.ndarray, held_out: sp.csr_matrix) -> float:
    """Mean of log sum_k theta_dk beta_kw over held-out words, in nats per word.

    Proportions are [D, K], topics [K, V], counts [D, V].
    """
    rows = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    words = np.ascontiguousarray(topics.T)
    total = 0.0
    # the products of a million cells would not fit into memory
    for first in range(0, held_out.nnz, _CELLS):
        part = slice(first, first + _CELLS)
        chances = np.einsum(
            "nk,nk->n", proportions[rows[part]], words[held_out.indices[part]], dtype=float
        )
        total += float(held_out.data[part] @ np.log(chances))
    return total / float(held_out.sum(dtype=float))


# ---
# scikit-learn's interface, without importing scikit-learn.


if TYPE_CHECKING:
    from sklearn.utils import Tags


class Estimator:
    """Constructor parameters as scikit-learn's pipelines, searches and `clone` need them.

    A subclass's constructor only stores its arguments under their names.
    """

    num_topics: int
    _fitted: Progress

    def get_params(
        self, deep: bool = True
    ) -> dict[str, Any]:  # of many types, so that the constructor takes them
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Estimator:
        """Change constructor arguments; return the model."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            raise UnknownOptionError(
                f"{sorted(unknown)} are not arguments of {type(self).__name__}; it has"
                f" {', '.join(self.get_params())}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {
            name: one.default for name, one in inspect.signature(type(self)).parameters.items()
        }
        changed = {
            name: value
            for name, value in self.get_params().items()
            if not _same(value, defaults[name])
        }
        return one_line(self, **changed)

    @property
    def n_features_in_(self) -> int:
        """V, the size of the fitted vocabulary, by scikit-learn's name."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"This {type(self).__name__} has no topics yet; call fit or partial_fit first."
            )
        return int(self._fitted.shared.components.shape[1])

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names "topic0", "topic1", ... [K] of `transform`'s columns; the input is ignored."""
        return np.array([f"topic{number}" for number in range(self.num_topics)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(sparse=True, positive_only=True),
        )


def _same(value: object, default: object) -> bool:
    return value is default or (isinstance(value, (str, Real)) and value == default)


# ---


SCORING_STEPS = 100
"""Most local steps of a document that is transformed or scored."""


@dataclass(kw_only=True, eq=False, repr=False)
class TopicModel(Estimator):
    """The base of `LatentDirichletAllocation` and `CorrelatedTopicModel`, a scikit-learn estimator.

    Subclasses define the prior of the proportions; `score` is the bound. Parameters as in
    `LatentDirichletAllocation`, such as `topic_prior`, a number or [V].
    """

    num_topics: int = field(default=10, kw_only=False)
    topic_prior: npt.ArrayLike | None = None
    learn_topic_prior: bool = False
    method: str = "batch"
    max_passes: int = 100
    tolerance: float = 2e-5
    fresh_passes: int = 10
    max_local_steps: int = 20
    local_tolerance: float = 1e-3
    start: str = "documents"
    batch_size: int = 256
    delay: float = 64.0
    forgetting_rate: float = 0.7
    num_documents: int | None = None
    seed: int = 0
    progress: bool = False

    def fit(self, X: Counts, y: object = None) -> TopicModel:
        """Fit to counts, from scratch.

        Sets `components_` (lambda [K, V]), `topic_prior_` (eta [V]), `state_` (of q(theta_d),
        arrays [D, ...]), `bound_` (nats), `history_` ("pass", "seconds" and "bound") and
        `stop_reason_`. With method="stochastic" the bound is an estimate. Documents without words
        keep the prior; the rest is found as without them.

        :param X: counts [D, V], dense or sparse.
        :raises NumericalError: if the prior of a correlated model is so wide that its precision is
            lost.
        """
        self._check()
        counts = check_counts(X)
        spoken = counts.getnnz(axis=1) > 0
        if not spoken.any():
            raise DataError("X has no words; a fit needs a document with at least one.")
        part = counts if spoken.all() else counts[spoken]
        run = fit_batch if self.method == "batch" else fit_stochastic
        with History(self.max_passes, self.progress) as history:
            found = run(self, part, self._start(part), history)
        self._fitted, state, self.stop_reason_ = found
        self.state_ = self._shared().proportions.start(counts.shape[0], counts.dtype)
        put_rows(self.state_, spoken, state)
        if not spoken.all():
            put_rows(self.state_, ~spoken, self._infer(counts[~spoken]).state)
        self.history_ = history.arrays
        self.bound_ = float(self.history_["bound"][-1])
        return self

    def partial_fit(self, X: Counts, y: object = None) -> TopicModel:
        """Make one stochastic step on a minibatch, with the best eta if learned; continues a fit.

        Documents without words are left out, and a minibatch of these alone changes nothing.

        :param X: counts [B, V] of a corpus of `num_documents`, or, if None, of all documents so
            far.
        """
        self._check()
        fitted = getattr(self, "_fitted", None)
        counts = check_counts(X, None if fitted is None else fitted.shared.components.shape[1])
        counts = counts[counts.getnnz(axis=1) > 0]
        if counts.nnz == 0:
            return self
        fitted = self._start(counts) if fitted is None else fitted
        seen = fitted.seen + counts.shape[0]
        state = fitted.shared.proportions.start(counts.shape[0], counts.dtype)
        scale = (self.num_documents or seen) / counts.shape[0]
        shared, _ = minibatch_step(self, fitted, counts, state, scale)
        shared = with_best_topic_prior(shared) if self.learn_topic_prior else shared
        self._fitted = Progress(shared, fitted.updates + 1, seen)
        return self

    def transform(self, X: Counts) -> np.ndarray:
        """Expected proportions E theta_d [D, K] of documents X [D, V]; rows sum to 1."""
        return self._shared().proportions.mean(self._infer(X).state)

    def fit_transform(self, X: Counts, y: object = None) -> np.ndarray:
        """`fit`, then `transform` of the same documents."""
        return self.fit(X).transform(X)

    def score(self, X: Counts, y: object = None) -> float:
        """The bound F on log p(X) in nats, for counts X [D, V], at the best q(theta_d)."""
        return float(self._infer(X).bounds.sum()) + topics_bound(self._shared())

    def perplexity(self, X: Counts, held_out: Counts | None = None) -> float:
        """exp(-score per word), of the words of X or of held-out words of the same documents.

        Without `held_out` by the bound, for models of one kind; with it proportions come from X.

        :param X: counts [D, V].
        :param held_out: counts [D, V] of other words of the same documents, see `split_words`.
        """
        if held_out is None:
            counts = check_counts(X, self._shared().components.shape[1])
            if counts.nnz == 0:
                raise DataError("X has no words of the vocabulary, and no perplexity of a word.")
            return float(np.exp(-self._infer(counts).bounds.sum() / counts.sum(dtype=float)))
        held = check_counts(held_out, self._shared().components.shape[1], "held_out")
        proportions = self.transform(X)
        if held.shape[0] != len(proportions) or held.nnz == 0:
            raise DataError(
                f"held_out has {held.shape[0]} documents and {held.nnz} words, X has"
                f" {len(proportions)} documents; held_out must be counts of other words of the same"
                " documents."
            )
        return float(np.exp(-completion(proportions, self.topics_, held)))

    @property
    def components_(self) -> np.ndarray:
        """Parameters lambda [K, V] of q(beta_k) = Dir(lambda_k), by scikit-learn's name."""
        return self._shared().components

    @property
    def topics_(self) -> np.ndarray:
        """Topics E beta_k [K, V]; rows sum to 1."""
        components = self._shared().components
        return components / components.sum(1, keepdims=True)

    def top_words(
        self, vocabulary: Iterable[str] | Mapping[str, int], n: int = 10
    ) -> list[list[str]]:
        """The `n` most probable words of each topic, most probable first: K lists.

        :param vocabulary: the V words by column, or columns by word: `get_feature_names_out()` or
            `vocabulary_` of scikit-learn's `CountVectorizer`.
        """
        topics = self.topics_
        if isinstance(vocabulary, str):
            raise DataError(
                "vocabulary is a string; pass a list of words, one for each column of the counts."
            )
        if isinstance(vocabulary, Mapping):
            if sorted(vocabulary.values()) != list(range(len(vocabulary))):
                raise DataError(
                    "vocabulary has columns that are not 0, 1, 2, ...; pass each word with its own"
                    " column."
                )
            words = sorted(vocabulary, key=lambda word: vocabulary[word])
        else:
            words = list(vocabulary)
        if len(words) != topics.shape[1]:
            raise DataError(
                f"vocabulary has {len(words)} words and the counts have {topics.shape[1]} columns;"
                " pass one word a column."
            )
        check_whole("n", n, 1)
        if n > len(words):
            raise DataError(
                f"n={n} is more than the {len(words)} words of the vocabulary; use a smaller n."
            )
        best = np.argsort(-topics, axis=1, kind="stable")[:, :n]
        return [[words[column] for column in row] for row in best]

    @property
    def topic_prior_(self) -> np.ndarray:
        """The concentrations eta [V], given or learned."""
        return self._shared().topic_prior

    def _check(self) -> None:
        check_settings(self)
        self._proportions()

    def _shared(self) -> Shared:
        fitted = getattr(self, "_fitted", None)
        if fitted is None:
            raise DataError(
                f"This {type(self).__name__} has no topics yet; call fit or partial_fit first."
            )
        return fitted.shared

    def _proportions(self) -> Proportions[Any]:
        raise NotImplementedError

    def _start(self, counts: sp.csr_matrix) -> Progress:
        components = start_topics(counts, self.num_topics, self.start, self.seed)
        prior = check_prior("topic_prior", self.topic_prior, counts.shape[1], 1.0 / self.num_topics)
        return Progress(Shared(components, prior, self._proportions()))

    def _infer(self, X: Counts) -> Local:
        shared = self._shared()
        counts = check_counts(X, shared.components.shape[1])
        blocks = split_into_blocks(counts, self.num_topics, shared.proportions.numbers_per_document)
        state = shared.proportions.start(counts.shape[0], counts.dtype)
        limits = Limits(self.local_tolerance, SCORING_STEPS)
        return local_step(
            counts, blocks, topic_weights(shared.components), shared.proportions, state, limits
        )
