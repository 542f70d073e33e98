"""Topic models as estimators: scikit-learn's conventions, documents of one call, and what is
refused before any work, with the former fit untouched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation, split_words
from tests.topics.corpora import generated

TEXTS = [
    "cat dog cat dog",
    "dog cat dog",
    "stock bond stock",
    "bond stock bond bond",
    "cat cat dog",
    "stock stock bond",
]
COUNTS = generated(20, 8, length=10).toarray()
Kind = type[LatentDirichletAllocation] | type[CorrelatedTopicModel]
both = pytest.mark.parametrize("kind", [LatentDirichletAllocation, CorrelatedTopicModel])


@both
def test_pipelines_from_text_to_classes(kind: Kind) -> None:
    topics = kind(2, max_passes=20)
    pipeline = make_pipeline(CountVectorizer(), topics, LogisticRegression(C=100.0))
    pipeline.fit(TEXTS, [0, 0, 1, 1, 0, 1])
    assert list(pipeline.predict(["dog dog cat dog cat", "bond stock bond bond"])) == [0, 1]
    fitted = pipeline[1]
    check_is_fitted(fitted)
    assert fitted.n_features_in_ == 4 and not hasattr(clone(fitted), "n_features_in_")
    assert list(pipeline[:-1].get_feature_names_out()) == ["topic0", "topic1"]
    words = fitted.top_words(pipeline[0].get_feature_names_out(), 2)
    assert sorted(map(sorted, words)) == [["bond", "stock"], ["cat", "dog"]]
    assert words == fitted.top_words(pipeline[0].vocabulary_, 2)


def test_a_search_chooses_by_the_bound() -> None:
    counts, model = CountVectorizer().fit_transform(TEXTS), LatentDirichletAllocation(max_passes=3)
    scores = []
    for one, prefix in ((model, ""), (make_pipeline(model), "latentdirichletallocation__")):
        grid = {f"{prefix}num_topics": [1, 2]}
        scores.append(GridSearchCV(one, grid, cv=2, error_score="raise").fit(counts).best_score_)
    assert np.isfinite(scores[0]) and scores[0] == scores[1]


@both
def test_parameters_as_in_scikit_learn(kind: Kind) -> None:
    model = kind(4, topic_prior=0.3, seed=5)
    other = clone(model)
    assert type(other) is kind and other is not model and other.get_params() == model.get_params()
    with pytest.raises(
        UnknownOptionError, match=r"\['n_components'\] are not arguments of .*; it has num_topics"
    ):
        model.set_params(n_components=3)
    theta = model.set_params(max_passes=2, num_topics=2).fit_transform(COUNTS)
    assert theta.shape == (20, 2) and repr(model).startswith(f"{kind.__name__}(num_topics=2")
    tags = get_tags(model)
    assert tags.input_tags.sparse and tags.input_tags.positive_only and tags.estimator_type is None
    assert not tags.target_tags.required


@pytest.mark.parametrize("learn", [True, False])
def test_partial_fit_learns_the_priors_that_a_stochastic_fit_learns(learn: bool) -> None:
    """Both take the same single step on all documents."""
    counts, settings = generated(), {"learn_topic_prior": learn, "learn_doc_prior": "symmetric"}
    fitted = LatentDirichletAllocation(3, method="stochastic", max_passes=1, **settings).fit(counts)
    partial = LatentDirichletAllocation(3, **settings).partial_fit(counts)
    check_is_fitted(partial)
    assert_allclose(partial.topic_prior_, fitted.topic_prior_, rtol=1e-6)
    assert_allclose(partial.doc_prior_, fitted.doc_prior_, rtol=1e-6)
    assert (abs(partial.topic_prior_[0] - 1.0 / 3.0) > 0.01) == learn


def test_words_come_by_their_probability() -> None:
    model = LatentDirichletAllocation(1, max_passes=2).fit([[9.0, 1.0, 5.0], [9.0, 1.0, 5.0]])
    assert model.top_words(["a", "b", "c"], 3) == [["a", "c", "b"]]


def test_progress_is_shown_where_asked(capsys: pytest.CaptureFixture) -> None:
    for progress in (False, True):
        options = {"max_passes": 2, "tolerance": 0.0, "progress": progress}
        LatentDirichletAllocation(2, **options).fit(COUNTS)
        assert ("2/2" in (shown := capsys.readouterr().err)) == progress and (progress or not shown)


# --- documents of one call


@both
def test_a_document_does_not_depend_on_the_others_of_a_call(kind: Kind) -> None:
    """Half of the documents converge long before the rest. Perplexity is a mean over words: the
    divergence of the topics belongs to the documents of the fit.
    """
    counts = generated(40)
    fitted = kind(2, max_passes=20).fit(counts)
    whole, words = fitted.transform(counts), counts[:5].sum(axis=1).A1
    for row in (0, 7, 39):
        assert_allclose(fitted.transform(counts[row]), whole[row : row + 1], rtol=1e-9)
    logs = [np.log(fitted.perplexity(counts[row])) for row in range(5)]
    for part in (counts[:5], sp.vstack([counts[:5], counts[:5]])):
        assert_allclose(np.log(fitted.perplexity(part)), words @ logs / words.sum(), rtol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind, options",
    [
        (LatentDirichletAllocation, {"learn_doc_prior": "vector"}),
        (LatentDirichletAllocation, {"method": "stochastic", "batch_size": 8}),
        (CorrelatedTopicModel, {"start_passes": 3}),
        (CorrelatedTopicModel, {"posterior": "dirichlet", "start_passes": 3}),
    ],
)
def test_documents_without_words_get_the_prior_and_change_nothing(
    kind: Kind, options: dict
) -> None:
    counts = generated(30).toarray()
    silent = np.insert(counts, [0, 7, 7, 30], 0, axis=0)
    spoken = silent.any(axis=1)
    model, expected = (kind(3, max_passes=4, **options).fit(one) for one in (silent, counts))
    assert_allclose(model.components_, expected.components_, rtol=1e-12)
    assert_allclose(model.history_["bound"], expected.history_["bound"], rtol=1e-12)
    for found, those in zip(model.state_, expected.state_):
        assert_allclose(found[spoken], those, rtol=1e-12)
    theta = model.transform(silent)
    assert_allclose(theta[~spoken], np.tile(theta[0], (4, 1)), rtol=1e-12)
    assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-9)
    assert_allclose(theta[spoken], model.transform(counts), rtol=1e-9)
    if "method" in options:
        assert_allclose(theta[0], 1.0 / 3.0, rtol=1e-9)
    prior = model._fitted.proportions.mean(model.state_)[~spoken]
    assert_allclose(prior, theta[~spoken], rtol=1e-12)
    for part in (silent[:12], np.zeros((5, 30))):
        model.partial_fit(part)
    expected.partial_fit(silent[:12][spoken[:12]])
    assert_allclose(model.components_, expected.components_, rtol=1e-12)


def test_weights_in_place_of_counts() -> None:
    """Counts need not be whole, a repeated or stored zero cell changes nothing, and what is passed
    is left alone.
    """
    model = LatentDirichletAllocation(3, max_passes=3, tolerance=0.0)
    whole = model.fit(COUNTS).components_
    rows, columns = np.nonzero(COUNTS)
    values, halves = COUNTS[rows, columns], (np.r_[rows, rows, 0], np.r_[columns, columns, 0])
    cells = sp.coo_matrix((np.r_[values / 2, values / 2, 0.0], halves), shape=COUNTS.shape)
    assert_allclose(model.fit(cells).components_, whole, rtol=1e-12)
    assert cells.nnz == len(halves[0])
    assert np.isfinite(model.fit(0.37 * COUNTS).bound_)


# --- refusals


def _with(value: float) -> np.ndarray:
    counts = COUNTS.copy()
    counts[0, 1] = value
    return counts


BAD_COUNTS = {
    "negative": (_with(-2.0), r"X has negative counts \(least -2\)"),
    "negative, sparse": (sp.coo_matrix(_with(-2.0)), r"X has negative counts \(least -2\)"),
    "NaN": (_with(np.nan), "X has counts that are NaN or infinite"),
    "one document": (COUNTS[0], r"X has shape \(8,\); it must be a matrix \[documents, words\]"),
    "no documents": (COUNTS[:0], r"X has shape \(0, 8\)"),
    "text": (np.array([["a", "b"]]), "X must be a matrix .* of counts"),
    "masked": (np.ma.masked_equal(COUNTS, 0), r"X must be .* masked entries; use X.filled\(0\)"),
}
BAD_SETTINGS: dict[str, list[tuple[Any, type[Exception], str]]] = {
    "num_topics": [(0, DataError, "num_topics=0 must be a whole number of at least 1")],
    "max_passes": [(2.5, DataError, "max_passes=2.5 must be a whole number")],
    "batch_size": [(0, DataError, "batch_size=0")],
    "fresh_passes": [(-1, DataError, "fresh_passes=-1")],
    "max_local_steps": [(True, DataError, "max_local_steps=True")],
    "num_documents": [(0, DataError, "num_documents=0")],
    "delay": [(-1.0, DataError, r"delay=-1.0 must be a number of at least 0")],
    "forgetting_rate": [
        (0.5, DataError, r"forgetting_rate=0.5 must be a number in \(0.5, 1\]"),
        (1.1, DataError, "forgetting_rate=1.1"),
    ],
    "tolerance": [(np.nan, DataError, "tolerance=nan"), (np.inf, DataError, "tolerance=inf")],
    "local_tolerance": [("small", DataError, "local_tolerance='small'")],
    "method": [("online", UnknownOptionError, "'online' is not known; use one of 'batch', 'stoch")],
    "start": [("kmeans", UnknownOptionError, "start='kmeans' is not known")],
    "learn_doc_prior": [("yes", UnknownOptionError, "learn_doc_prior='yes'")],
    "doc_prior": [([0.1, 0.2], DataError, r"doc_prior has shape \(2,\); it .* shape \(3,\)")],
    "topic_prior": [(0.0, DataError, "topic_prior must be finite and above 0")],
}
BAD_CORRELATED: dict[str, list[tuple[Any, type[Exception], str]]] = {
    "num_topics": [(1, DataError, "num_topics=1 must be a whole number of at least 2")],
    "posterior": [("laplace", UnknownOptionError, "posterior='laplace'")],
    "prior_variance": [(0.0, DataError, "prior_variance must be finite and above 0; it is 0.0")],
    "start_passes": [(-1, DataError, "start_passes=-1")],
    "prior_documents": [
        (value, DataError, "prior_documents=.* must be 0, .* or above 6, twice its size")
        for value in (-1.0, 6, 5.9, np.nan, np.inf, "many", True)
    ],
}


@pytest.mark.parametrize("name", BAD_COUNTS)
def test_bad_counts_are_refused_and_the_fit_stays(name: str) -> None:
    counts, message = BAD_COUNTS[name]
    model = LatentDirichletAllocation(3, max_passes=2).fit(COUNTS)
    before = model.components_.copy()
    for verb in (model.fit, model.partial_fit, model.transform, model.score, model.perplexity):
        with pytest.raises(DataError, match=message):
            verb(counts)
    np.testing.assert_array_equal(model.components_, before)


@pytest.mark.parametrize(
    "kind, table",
    [(LatentDirichletAllocation, BAD_SETTINGS), (CorrelatedTopicModel, BAD_CORRELATED)],
)
def test_bad_settings_are_refused_and_the_fit_stays(kind: Kind, table: dict) -> None:
    model = kind(3, max_passes=1).fit(COUNTS)
    before = model.components_.copy()
    cases = [(name, *case) for name, cases in table.items() for case in cases]
    for name, value, error, message in cases:
        good = model.get_params()[name]
        model.set_params(**{name: value})
        for verb in (model.fit,) if name == "topic_prior" else (model.fit, model.partial_fit):
            with pytest.raises(error, match=message):
                verb(COUNTS)
        model.set_params(**{name: good})
    np.testing.assert_array_equal(model.components_, before)


EMPTY = LatentDirichletAllocation(3)
WORDS, OTHER = list("abcdefgh"), COUNTS[:, :7] + 1.0
VOCABULARY = r"X has 7 words \(columns\) and the topics were fitted on 8"
REFUSED = {
    "no topics": (
        lambda model: EMPTY.transform(COUNTS),
        "no topics yet; call fit or partial_fit first",
    ),
    "no topics, words": (lambda model: EMPTY.top_words(WORDS), "no topics yet"),
    "no words": (
        lambda model: EMPTY.fit(np.zeros((5, 30))),
        "X has no words; a fit needs a document",
    ),
    "partial_fit": (lambda model: model.partial_fit(OTHER), VOCABULARY),
    "transform": (lambda model: model.transform(OTHER), VOCABULARY),
    "score": (lambda model: model.score(OTHER), VOCABULARY),
    "documents": (lambda model: model.perplexity(COUNTS, COUNTS[:5]), "held_out has 5 documents"),
    "held out": (lambda model: model.perplexity(COUNTS, COUNTS[:, :7]), "held_out has 7 words"),
    "nothing": (lambda model: model.perplexity(0.0 * COUNTS), "X has no words of the vocabulary"),
    "few": (lambda model: model.top_words(["a", "b"]), "has 2 words and the counts have 8 columns"),
    "string": (
        lambda model: model.top_words("abcd"),
        "vocabulary is a string; pass a list of words",
    ),
    "columns": (
        lambda model: model.top_words({word: 2 * place for place, word in enumerate(WORDS)}),
        "columns that are not 0, 1, 2",
    ),
    "n of 0": (lambda model: model.top_words(WORDS, 0), "n=0 must be a whole number of at least 1"),
    "n of 9": (lambda model: model.top_words(WORDS, 9), "n=9 is more than the 8 words"),
    "share": (lambda model: split_words(COUNTS, 1.0), "share=1.0 must lie between 0 and 1"),
    "halves": (lambda model: split_words(COUNTS + 0.5), "counts that are not whole"),
    "one word": (lambda model: split_words(np.eye(3)), "No document of X has words in both parts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        call(LatentDirichletAllocation(3, max_passes=1).fit(COUNTS))
