"""Latent Dirichlet allocation and the correlated topic model, scikit-learn estimators."""

from __future__ import annotations

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "Local", "local_step"]

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from tqdm.auto import tqdm

from ..errors import DataError, UnknownOptionError, check_option
from ..inputs import check_whole
from ..summaries import one_line, short_repr
from .documents import (
    Block,
    Counts,
    TopicWeights,
    Words,
    check_counts,
    put_rows,
    rows_of,
    split_into_blocks,
    topic_weights,
)
from .proportions import (
    CovariancePrior,
    DirichletProportions,
    GaussianProportions,
    LogisticDirichlet,
    Proportions,
    best_symmetric_prior,
    expected_log,
    minus_kl,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags

# ---
# The local step for all documents, at fixed topics.


class Local(NamedTuple):
    """The result of a local step."""

    state: Any
    """Parameters of q(theta_d), a NamedTuple of arrays [D, ...]."""
    bounds: np.ndarray
    """F_d of each document [D], nats."""
    statistics: np.ndarray
    """sum_d n_dw phi_dwk [K, V]."""


def local_step(
    counts: sp.csr_matrix,
    blocks: Sequence[Block],
    topics: TopicWeights,
    proportions: Proportions,
    state: Any,
    tolerance: float,
    max_steps: int,
    fallback: Any = None,
) -> Local:
    """Move q(theta_d) of all documents to its optimum at fixed topics.

    A step costs the non-zero counts times K. The assignments phi [D, V, K] are never stored, only
    sums. States are arrays [D, ...]; documents take `fallback` where their bound is better there.
    """
    state = state._make(map(np.copy, state))
    bounds = np.empty(counts.shape[0])
    weights = np.empty((counts.shape[0], topics.weights.shape[1]), dtype=counts.dtype)
    ratios = np.empty_like(counts.data)
    for block in blocks:
        words = Words.gather(block, topics)
        found = proportions.converge(words, rows_of(state, block.rows), tolerance, max_steps)
        now = proportions.evaluate(words, found)
        if fallback is not None:
            other = rows_of(fallback, block.rows)
            then = proportions.evaluate(words, other)
            worse = now.bound < then.bound
            put_rows(found, worse, rows_of(other, worse))
            put_rows(now, worse, rows_of(then, worse))
        put_rows(state, block.rows, found)
        bounds[block.rows], weights[block.rows] = now.bound, now.weights
        ratios[block.cells] = now.ratios[block.counts > 0]
    shares = sp.csr_matrix((ratios, counts.indices, counts.indptr), shape=counts.shape)
    return Local(state, bounds, (topics.weights * (shares.T @ weights)).T)  # (T2)


class _Fitted(NamedTuple):
    """What all documents share, and how far a fit is."""

    components: np.ndarray
    """lambda [K, V] of q(beta_k) = Dir(lambda_k)."""
    topic_prior: np.ndarray
    """eta [V]."""
    proportions: Any
    """Prior of theta_d, and its local step."""
    updates: int = 0
    """Stochastic steps made."""
    seen: int = 0
    """Documents given to `fit` and `partial_fit`."""

    @property
    def bound(self) -> float:
        """The bound's terms without a document, in nats: topics, and priors of learned priors."""
        topics = float(minus_kl(self.topic_prior, self.components.astype(float)).sum())  # (T3)
        return topics + self.proportions.log_prior

    def with_best_topic_prior(self) -> _Fitted:
        """The same topics with their best symmetric eta."""
        best = best_symmetric_prior(expected_log(self.components.astype(float)))
        return self._replace(topic_prior=np.full_like(self.topic_prior, best))


# ---


_SCORING_STEPS = 100  # at most, of a document that is transformed or scored
_CELLS = 1 << 14  # counts at a time; the products of a million would not fit into memory


@dataclass(kw_only=True, eq=False, repr=False)
class _TopicModel:
    """Fits, scores and scikit-learn's interface, for any prior of the proportions."""

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

    def fit(self, X: Counts, y: object = None) -> Any:
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
        part, batch = counts if spoken.all() else counts[spoken], self.method == "batch"
        passes = (self._batch_passes if batch else self._stochastic_passes)(part, self._begin(part))
        rows, began, reason = [], time.perf_counter(), "max_passes"
        with tqdm(total=self.max_passes, disable=not self.progress, unit="pass") as bar:
            for number, found in enumerate(passes, 1):
                fitted, state, of_documents = found
                bound = of_documents + fitted.bound
                rows.append((float(number), time.perf_counter() - began, bound))
                bar.update()
                bar.set_postfix(bound=f"{bound:.6g}")
                gain = bound - rows[-2][2] if number > max(1, self.fresh_passes) else np.inf
                if batch and gain < self.tolerance * abs(bound):
                    reason = "converged"
                    break
        self._fitted, self.stop_reason_, self.bound_ = fitted, reason, bound
        self.history_ = dict(zip(("pass", "seconds", "bound"), np.array(rows).T))
        self.state_ = fitted.proportions.start(counts.shape[0], counts.dtype)
        put_rows(self.state_, spoken, state)
        if not spoken.all():
            put_rows(self.state_, ~spoken, self._infer(counts[~spoken]).state)
        return self

    def partial_fit(self, X: Counts, y: object = None) -> Any:
        """Make one stochastic step on a minibatch, with the best eta if learned; continues a fit.

        Documents without words are left out, and a minibatch of these alone changes nothing.

        :param X: counts [B, V] of a corpus of `num_documents`, or, if None, of all documents so
            far.
        """
        self._check()
        now = getattr(self, "_fitted", None)
        counts = check_counts(X, None if now is None else now.components.shape[1])
        counts = counts[counts.getnnz(axis=1) > 0]
        if counts.nnz == 0:
            return self
        now = self._begin(counts) if now is None else now
        now = now._replace(seen=now.seen + counts.shape[0])
        state = now.proportions.start(counts.shape[0], counts.dtype)
        now, _ = self._step(now, counts, state, (self.num_documents or now.seen) / counts.shape[0])
        self._fitted = now.with_best_topic_prior() if self.learn_topic_prior else now
        return self

    def transform(self, X: Counts) -> np.ndarray:
        """Expected proportions E theta_d [D, K] of documents X [D, V]; rows sum to 1."""
        return self._shared().proportions.mean(self._infer(X).state)

    def fit_transform(self, X: Counts, y: object = None) -> np.ndarray:
        """`fit`, then `transform` of the same documents."""
        return self.fit(X).transform(X)

    def score(self, X: Counts, y: object = None) -> float:
        """The bound F on log p(X) in nats, for counts X [D, V], at the best q(theta_d)."""
        return float(self._infer(X).bounds.sum()) + self._shared().bound

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
        theta, beta = self.transform(X), np.ascontiguousarray(self.topics_.T)
        if held.shape[0] != len(theta) or held.nnz == 0:
            raise DataError(
                f"held_out has {held.shape[0]} documents and {held.nnz} words, X has"
                f" {len(theta)} documents; held_out must be counts of other words of the same"
                " documents."
            )
        documents, total = np.repeat(np.arange(len(theta)), np.diff(held.indptr)), 0.0
        for first in range(0, held.nnz, _CELLS):
            part = slice(first, first + _CELLS)
            pairs = theta[documents[part]], beta[held.indices[part]]
            total += float(held.data[part] @ np.log(np.einsum("nk,nk->n", *pairs, dtype=float)))
        return float(np.exp(-total / float(held.sum(dtype=float))))

    @property
    def components_(self) -> np.ndarray:
        """Parameters lambda [K, V] of q(beta_k) = Dir(lambda_k), by scikit-learn's name."""
        return self._shared().components

    @property
    def topics_(self) -> np.ndarray:
        """Topics E beta_k [K, V]; rows sum to 1."""
        components = self._shared().components
        return components / components.sum(1, keepdims=True)

    @property
    def topic_prior_(self) -> np.ndarray:
        """The concentrations eta [V], given or learned."""
        return self._shared().topic_prior

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
        words = list(vocabulary)
        if isinstance(vocabulary, Mapping):
            words = sorted(vocabulary, key=lambda word: vocabulary[word])
            if sorted(vocabulary.values()) != list(range(len(words))):
                raise DataError(
                    "vocabulary has columns that are not 0, 1, 2, ...; pass each word with its own"
                    " column."
                )
        if len(words) != topics.shape[1]:
            raise DataError(
                f"vocabulary has {len(words)} words and the counts have {topics.shape[1]} columns;"
                " pass one word a column."
            )
        check_whole(1, n=n)
        if n > len(words):
            raise DataError(
                f"n={n} is more than the {len(words)} words of the vocabulary; use a smaller n."
            )
        best = np.argsort(-topics, axis=1, kind="stable")[:, :n]
        return [[words[column] for column in row] for row in best]

    # --- fits

    def _shared(self) -> _Fitted:
        if not self.__sklearn_is_fitted__():
            raise DataError(
                f"This {type(self).__name__} has no topics yet; call fit or partial_fit first."
            )
        return self._fitted

    def _proportions(self) -> Proportions:
        raise NotImplementedError

    def _begin(self, counts: sp.csr_matrix) -> _Fitted:
        """One document's counts plus Gamma(100, 1/100) draws per topic, or draws alone."""
        generator, shape = np.random.default_rng(self.seed), (self.num_topics, counts.shape[1])
        components: Any = 0.0
        if self.start == "documents":
            # fewer documents than topics: some are used twice, and the draws make these differ
            rows = generator.permutation(counts.shape[0])[: self.num_topics]
            components = counts[np.resize(rows, self.num_topics)].toarray()
        components = (components + generator.gamma(100.0, 0.01, shape)).astype(counts.dtype)
        prior = _prior("topic_prior", self.topic_prior, counts.shape[1], 1.0 / self.num_topics)
        return _Fitted(components, prior, self._proportions())

    def _batch_passes(
        self, counts: sp.csr_matrix, now: _Fitted
    ) -> Iterator[tuple[_Fitted, Any, float]]:
        """Updates on all documents (T2): what is shared, the states, and the documents' bound.

        In the first `fresh_passes` each document also starts afresh and keeps the better result.
        """
        blocks = self._blocks(counts, now)
        limits = self.local_tolerance, self.max_local_steps
        fresh = now.proportions.start(counts.shape[0], counts.dtype)
        topics = topic_weights(now.components)
        local = local_step(counts, blocks, topics, now.proportions, fresh, *limits)
        for number in range(1, self.max_passes + 1):
            now = now._replace(
                components=(now.topic_prior + local.statistics).astype(counts.dtype),  # (T2)
                proportions=now.proportions.learned(local.state),
                seen=counts.shape[0],
            )
            now = now.with_best_topic_prior() if self.learn_topic_prior else now
            topics = topic_weights(now.components)
            again = number <= self.fresh_passes
            start, fallback = (fresh, local.state) if again else (local.state, None)
            local = local_step(counts, blocks, topics, now.proportions, start, *limits, fallback)
            yield now, local.state, float(local.bounds.sum())

    def _stochastic_passes(
        self, counts: sp.csr_matrix, now: _Fitted
    ) -> Iterator[tuple[_Fitted, Any, float]]:
        """As `_batch_passes`, by steps (T4) on shuffled minibatches.

        A document's local step starts at its last result.
        """
        generator, size = np.random.default_rng(self.seed), counts.shape[0]
        now, bounds = now._replace(seen=size), np.zeros(size)
        state = now.proportions.start(size, counts.dtype)
        for _ in range(self.max_passes):
            order = generator.permutation(size)
            for first in range(0, size, self.batch_size):
                rows = order[first : first + self.batch_size]
                now, local = self._step(now, counts[rows], rows_of(state, rows), size / len(rows))
                bounds[rows] = local.bounds
                put_rows(state, rows, local.state)
            now = now.with_best_topic_prior() if self.learn_topic_prior else now
            yield now, state, float(bounds.sum())

    def _step(
        self, now: _Fitted, counts: sp.csr_matrix, state: Any, scale: float
    ) -> tuple[_Fitted, Local]:
        """A natural-gradient step on a minibatch [B, V]; `scale` is documents of the corpus / B."""
        # the local step sees only the words that occur, so that its cost does not grow with the
        # vocabulary
        columns, inverse = np.unique(counts.indices, return_inverse=True)
        part = sp.csr_matrix(
            (counts.data, inverse.astype(counts.indptr.dtype), counts.indptr),
            (counts.shape[0], len(columns)),
        )
        local = local_step(
            part,
            self._blocks(part, now),
            topic_weights(now.components, columns),
            now.proportions,
            state,
            self.local_tolerance,
            self.max_local_steps,
        )
        rho = (now.updates + 1.0 + self.delay) ** -self.forgetting_rate
        components = (1.0 - rho) * now.components
        components += (rho * now.topic_prior).astype(components.dtype)
        components[:, columns] += rho * scale * local.statistics  # (T4)
        proportions = now.proportions.learned(local.state, rho, scale * counts.shape[0])
        moved = now._replace(
            components=components, proportions=proportions, updates=now.updates + 1
        )
        return moved, local

    def _infer(self, X: Counts) -> Local:
        now = self._shared()
        counts = check_counts(X, now.components.shape[1])
        state = now.proportions.start(counts.shape[0], counts.dtype)
        return local_step(
            counts,
            self._blocks(counts, now),
            topic_weights(now.components),
            now.proportions,
            state,
            self.local_tolerance,
            _SCORING_STEPS,
        )

    def _blocks(self, counts: sp.csr_matrix, now: _Fitted) -> list[Block]:
        return split_into_blocks(counts, self.num_topics, now.proportions.numbers_per_document)

    def _check(self) -> None:
        """Refuse arguments that cannot be, before any work."""
        check_option("method", self.method, ("batch", "stochastic"))
        check_option("start", self.start, ("documents", "random"))
        for name in ("num_topics", "max_passes", "max_local_steps", "batch_size"):
            check_whole(1, **{name: getattr(self, name)})
        check_whole(0, fresh_passes=self.fresh_passes)
        if self.num_documents is not None:
            check_whole(1, num_documents=self.num_documents)
        for name in ("tolerance", "local_tolerance", "delay"):
            if not 0.0 <= _number(value := getattr(self, name)) < np.inf:
                raise DataError(f"{name}={short_repr(value)} must be a number of at least 0.")
        if not 0.5 < _number(self.forgetting_rate) <= 1.0:
            raise DataError(
                f"forgetting_rate={short_repr(self.forgetting_rate)} must be a number in (0.5, 1],"
                " without which the steps do not converge."
            )
        self._proportions()

    # --- scikit-learn's interface, without importing scikit-learn

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    def set_params(self, **params: object) -> Any:
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
        changed = {
            one.name: value
            for one in dataclasses.fields(self)
            if (value := getattr(self, one.name)) is not one.default
            and not (isinstance(value, (str, Real)) and value == one.default)
        }
        return one_line(self, **changed)

    @property
    def n_features_in_(self) -> int:
        """V, the size of the fitted vocabulary, by scikit-learn's name."""
        try:
            return int(self.components_.shape[1])
        except DataError as error:
            raise AttributeError(str(error)) from error

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


def _number(value: object) -> float:
    return float(value) if isinstance(value, Real) else np.nan


def _prior(name: str, value: npt.ArrayLike | None, size: int, default: float) -> np.ndarray:
    """A prior, a number, an array [size] or None for the default, as an array [size]."""
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


# ---
# Latent Dirichlet allocation (Blei, Ng & Jordan 2003).


# Document d has proportions theta_d of K topics, topic k probabilities beta_k of V words, and each
# word w_dn a topic z_dn, (T1)-(T4):
#
#   beta_k ~ Dir(eta),   theta_d ~ Dir(alpha),   z_dn ~ theta_d,   w_dn ~ beta_z
#   q(beta_k) = Dir(lambda_k),   q(theta_d) = Dir(gamma_d),   q(z_dn = k) = phi_dwk
#
# | paper | code | shape |
# |---|---|---|
# | alpha | `doc_prior` | [K] |
# | eta | `topic_prior` | [V] |
# | lambda | `components_` | [K, V] |
# | gamma | `state_.gamma` | [D, K] |
# | tau_0, kappa | `delay`, `forgetting_rate` | [] |


@dataclass(kw_only=True, eq=False, repr=False)
class LatentDirichletAllocation(_TopicModel):
    """Latent Dirichlet allocation as a scikit-learn estimator.

    Cost of a pass: the non-zero counts times K times the local steps.

    :param num_topics: K.
    :param doc_prior: alpha, a number or an array [K]; 1 / K if None.
    :param topic_prior: eta, a number or an array [V]; 1 / K if None.
    :param learn_doc_prior: learn alpha by Newton's method: "none", "symmetric" or "vector".
    :param learn_topic_prior: learn a symmetric eta.
    :param method: "batch", whose bound rises in each pass, or "stochastic", with minibatches.
    :param max_passes: most passes over all documents.
    :param tolerance: a batch fit stops when a pass raises the bound by a smaller share.
    :param fresh_passes: passes that also start documents afresh: twice the time, better optima.
    :param max_local_steps: most steps of a document in a pass.
    :param local_tolerance: change of gamma, averaged over topics, at which a document's steps end.
    :param start: topics start at one document each ("documents"), or at draws ("random").
    :param batch_size: documents per minibatch.
    :param delay: tau_0 >= 0 of the step sizes (tau_0 + t)^-kappa.
    :param forgetting_rate: kappa in (1/2, 1].
    :param num_documents: documents with words in the corpus of which `partial_fit` sees parts.
    :param seed: of the start and the minibatches.

    Example::

        # [D, V], dense or sparse
        model = LatentDirichletAllocation(20, learn_doc_prior="vector").fit(counts)
        model.top_words(vectorizer.get_feature_names_out())
        model.transform(new_counts)  # expected proportions [D, K]
    """

    doc_prior: npt.ArrayLike | None = None
    learn_doc_prior: str = "none"

    @property
    def doc_prior_(self) -> np.ndarray:
        """The concentrations alpha [K], given or learned."""
        return self._shared().proportions.alpha

    def _proportions(self) -> DirichletProportions:
        check_option("learn_doc_prior", self.learn_doc_prior, ("none", "symmetric", "vector"))
        prior = _prior("doc_prior", self.doc_prior, self.num_topics, 1.0 / self.num_topics)
        if self.learn_doc_prior == "symmetric":
            prior = np.full_like(prior, prior.mean())
        return DirichletProportions(prior, self.learn_doc_prior)


# ---


# Latent Dirichlet allocation with topic proportions that are a softmax of correlated Gaussians:
#
#   eta_d ~ N(mu_0, Sigma_0),   theta_d = softmax(eta_d)
#
# | paper | code | shape |
# |---|---|---|
# | mu_0, Sigma_0 | `mean_`, `covariance_` | [K], [K, K] |
# | the same for log-ratios to the last topic ("dirichlet") | | [K - 1], [K - 1, K - 1] |
# | m, V^-1 | `state_.mean`, `state_.precision` | [D, K], [D, K, K] or [D, K] |
# | c | `state_.c` | [D, K] |
# | lambda | `components_` | [K, V] |


POSTERIORS = ("gaussian", "diagonal", "dirichlet")


@dataclass(kw_only=True, eq=False, repr=False)
class CorrelatedTopicModel(_TopicModel):
    """Topics with correlated proportions; methods and other arguments as
    `LatentDirichletAllocation`.

    A local step of a document with W distinct words costs W K, plus K^3 for a Gaussian or K^2 for a
    Dirichlet posterior; "gaussian" stores D K^2 numbers.

    :param posterior: "gaussian", q(eta_d) = N(m, V); "diagonal", with a diagonal V; or "dirichlet",
        q(theta_d) = Dir(c), in closed form.
    :param learn_prior: learn mu_0 and Sigma_0, which otherwise stay 0 and `prior_variance` times I.
    :param prior_variance: the diagonal of Sigma_0 at the start, and of its prior's mode.
    :param prior_documents: n_0, the weight of Sigma_0's inverse-Wishart prior, in documents; 0 for
        no prior, else above 2 K.
    :param start_passes: passes of `LatentDirichletAllocation` that find the first topics; 0 is
        slower and worse.

    Example::

        # [D, V], dense or sparse
        model = CorrelatedTopicModel(20, posterior="dirichlet").fit(counts)
        model.correlations_  # which topics occur together [K, K]
    """

    posterior: str = "gaussian"
    learn_prior: bool = True
    prior_variance: float = 1.0
    prior_documents: float = 0.0
    start_passes: int = 20
    max_local_steps: int = 5
    local_tolerance: float = 1e-2

    @property
    def mean_(self) -> np.ndarray:
        """The prior mean mu_0, [K], or [K - 1] for "dirichlet"."""
        return self._shared().proportions.mu

    @property
    def covariance_(self) -> np.ndarray:
        """The prior covariance Sigma_0, [K, K], or [K - 1, K - 1] for "dirichlet"."""
        return self._shared().proportions.Sigma

    @property
    def correlations_(self) -> np.ndarray:
        """Prior correlations [K, K] of the log-proportions, centred over topics."""
        covariance = self.covariance_
        if self.posterior == "dirichlet":  # the last log-ratio is 0
            covariance = np.pad(covariance, (0, 1))
        size = len(covariance)
        centring = np.eye(size) - 1.0 / size
        covariance = centring @ covariance @ centring
        deviations = np.sqrt(np.diagonal(covariance))
        return covariance / np.outer(deviations, deviations)

    def _proportions(self) -> GaussianProportions | LogisticDirichlet:
        check_whole(0, start_passes=self.start_passes)
        check_option("posterior", self.posterior, POSTERIORS)
        check_whole(2, num_topics=self.num_topics)
        _prior("prior_variance", self.prior_variance, 1, 1.0)
        dirichlet = self.posterior == "dirichlet"
        size = self.num_topics - 1 if dirichlet else self.num_topics
        mu, Sigma, n = np.zeros(size), self.prior_variance * np.eye(size), self.prior_documents
        if isinstance(n, bool) or not (_number(n) == 0.0 or 2 * size < _number(n) < np.inf):
            raise DataError(
                f"prior_documents={short_repr(n)} must be 0, for no prior of the covariance, or"
                f" above {2 * size}, twice its size, for a prior that is proper."
            )
        prior = CovariancePrior(float(n), Sigma) if n > 0.0 and self.learn_prior else None
        if dirichlet:
            return LogisticDirichlet(mu, Sigma, self.learn_prior, prior)
        diagonal = self.posterior == "diagonal"
        return GaussianProportions(mu, Sigma, self.learn_prior, prior, diagonal=diagonal)

    def _begin(self, counts: sp.csr_matrix) -> _Fitted:
        begun = super()._begin(counts)
        if self.start_passes == 0:
            return begun
        first = LatentDirichletAllocation(
            self.num_topics,
            topic_prior=self.topic_prior,
            learn_doc_prior="symmetric",
            learn_topic_prior=self.learn_topic_prior,
            start=self.start,
            seed=self.seed,
            max_passes=self.start_passes,
            fresh_passes=self.start_passes // 2,
        ).fit(counts)
        return begun._replace(components=first.components_)
