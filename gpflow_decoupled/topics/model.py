"""What topic models share: the verbs of scikit-learn, the passes over the documents, held-out scores."""

from __future__ import annotations

__all__ = ["TopicModel"]

import inspect
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError, UnknownOptionError
from .blocks import split_into_blocks
from .counts import check_counts
from .history import History
from .local import Limits, Local, local_step
from .options import check_prior, check_settings
from .passes import Progress, fit_batch, fit_stochastic, minibatch_step
from .scores import completion
from .shared import Shared, start_topics, topics_bound
from .words import topic_weights

SCORING_STEPS = 100
"""Local steps of a document that is transformed or scored."""


class TopicModel:
    """Base of `LatentDirichletAllocation` and `CorrelatedTopicModel`; a subclass says what the proportions are.

    Its constructor stores its arguments under their names and does nothing else, as scikit-learn's `clone` expects.
    """

    num_topics: int
    method: str
    max_passes: int
    fresh_passes: int
    tolerance: float
    max_local_steps: int
    local_tolerance: float
    topic_prior: Any
    learn_topic_prior: bool
    start: str
    batch_size: int
    delay: float
    forgetting_rate: float
    num_documents: int | None
    seed: int
    progress: bool

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> TopicModel:
        """Change arguments of the constructor. Raises `UnknownOptionError` for a name that it does not have."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            raise UnknownOptionError(
                f"{sorted(unknown)} are no arguments of {type(self).__name__}; it has {', '.join(self.get_params())}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The class and its arguments."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def fit(self, X: Any, y: Any = None) -> TopicModel:
        """Fit to counts X [D, V], dense or sparse; what was fitted before is forgotten. y is ignored.

        Raises `DataError` and `UnknownOptionError` before any work. Sets `components_` (lambda [K, V]), `topic_prior_`,
        `state_` (q(theta_d), arrays [D, ...]), `bound_` (nats), `history_` (arrays "pass", "seconds", "bound") and
        `stop_reason_`. With method="stochastic" a bound is an estimate: of the minibatches of a pass, while topics move.
        """
        self._check()
        counts = check_counts(X)
        run = fit_batch if self.method == "batch" else fit_stochastic
        with History(self.max_passes, self.progress) as history:
            found = run(self, counts, self._start(counts), history)
        self._fitted, self.state_, self.stop_reason_ = found
        self.history_ = history.arrays
        self.bound_ = float(self.history_["bound"][-1])
        return self

    def partial_fit(self, X: Any, y: Any = None) -> TopicModel:
        """One stochastic step, (T4), on the minibatch X [B, V] of a corpus of `num_documents`. y is ignored.

        Without `num_documents` the corpus is all documents seen so far. Goes on from a former fit. Raises as `fit`, and
        `DataError` for another vocabulary than the fitted one.
        """
        self._check()
        fitted = getattr(self, "_fitted", None)
        counts = check_counts(X, None if fitted is None else fitted.shared.components.shape[1])
        fitted = self._start(counts) if fitted is None else fitted
        seen = fitted.seen + counts.shape[0]
        state = fitted.shared.proportions.start(counts.shape[0], counts.dtype)
        scale = (self.num_documents or seen) / counts.shape[0]
        shared, _ = minibatch_step(self, fitted, counts, state, scale)
        self._fitted = Progress(shared, fitted.updates + 1, seen)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """E theta_d [D, K] of each document of X [D, V] at the fitted topics; rows sum to 1."""
        return self._shared().proportions.mean(self._infer(X).state)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """`fit`, then `transform` of the same documents."""
        return self.fit(X).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The bound F on log p(X), in nats, (T3): documents at their optimum, and the topics' term once."""
        return float(self._infer(X).bounds.sum()) + topics_bound(self._shared())

    def perplexity(self, X: Any, held_out: Any | None = None) -> float:
        """The exponential of minus the score a word: of the bound, or of `held_out` words of the same documents.

        :param X: counts [D, V]. :param held_out: counts [D, V] of words of the same documents, see `split_words`; proportions
            come from X, and a word scores log sum_k E theta_dk E beta_kw.

        The first is scikit-learn's definition, and depends on the prior; the second compares any two models.
        """
        if held_out is None:
            counts = check_counts(X, self._shared().components.shape[1])
            return float(np.exp(-self.score(counts) / counts.sum(dtype=float)))
        held = check_counts(held_out, self._shared().components.shape[1], "held_out", empty=True)
        proportions = self.transform(X)
        if held.shape[0] != len(proportions) or held.nnz == 0:
            raise DataError(
                f"held_out has {held.shape[0]} documents and {held.nnz} words, X has {len(proportions)} documents; held_out "
                "must hold other words of the same documents."
            )
        return float(np.exp(-completion(proportions, self.topics_, held)))

    @property
    def components_(self) -> np.ndarray:
        """The parameters lambda [K, V] of q(beta_k) = Dir(lambda_k), under scikit-learn's name."""
        return self._shared().components

    @property
    def topics_(self) -> np.ndarray:
        """E beta_k [K, V], the topics; rows sum to 1."""
        components = self._shared().components
        return components / components.sum(1, keepdims=True)

    @property
    def topic_prior_(self) -> np.ndarray:
        """The concentrations eta [V], given or learned."""
        return self._shared().topic_prior

    def _check(self) -> None:
        """Refuse settings that make no sense, whatever the data."""
        check_settings(self)
        self._proportions()

    def _shared(self) -> Shared:
        fitted = getattr(self, "_fitted", None)
        if fitted is None:
            raise DataError(f"This {type(self).__name__} has no topics yet; call fit or partial_fit first.")
        return fitted.shared

    def _proportions(self) -> Any:
        """The prior of the proportions before learning."""
        raise NotImplementedError

    def _start(self, counts: sp.csr_matrix) -> Progress:
        components = start_topics(counts, self.num_topics, self.start, self.seed)
        prior = check_prior("topic_prior", self.topic_prior, counts.shape[1], 1.0 / self.num_topics)
        return Progress(Shared(components, prior, self._proportions()))

    def _infer(self, X: Any) -> Local:
        """The local step to convergence, from nothing, for documents X [D, V]."""
        shared = self._shared()
        counts = check_counts(X, shared.components.shape[1])
        blocks = split_into_blocks(counts, self.num_topics, shared.proportions.numbers_a_document)
        state = shared.proportions.start(counts.shape[0], counts.dtype)
        limits = Limits(self.local_tolerance, SCORING_STEPS)
        return local_step(counts, blocks, topic_weights(shared.components), shared.proportions, state, limits)
