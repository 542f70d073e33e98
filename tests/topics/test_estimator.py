"""Topic models inside scikit-learn, and their most probable words."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation
from tests.topics.corpora import generated

TEXTS = [
    "cat dog cat dog",
    "dog cat dog",
    "stock bond stock",
    "bond stock bond bond",
    "cat cat dog",
    "stock stock bond",
]
KIND = [0, 0, 1, 1, 0, 1]
MODELS = [LatentDirichletAllocation(2, max_passes=5), CorrelatedTopicModel(2, max_passes=20)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_pipelines_from_text_to_classes(model) -> None:
    pipeline = make_pipeline(CountVectorizer(), clone(model), LogisticRegression(C=100.0)).fit(
        TEXTS, KIND
    )
    assert list(pipeline.predict(["dog dog cat dog cat", "bond stock bond bond"])) == [0, 1]
    fitted = pipeline[1]
    check_is_fitted(fitted)
    assert fitted.n_features_in_ == 4 and not hasattr(clone(model), "n_features_in_")
    assert list(pipeline[:-1].get_feature_names_out()) == ["topic0", "topic1"]
    words = fitted.top_words(pipeline[0].get_feature_names_out(), 2)
    assert sorted(map(sorted, words)) == [["bond", "stock"], ["cat", "dog"]]
    assert words == fitted.top_words(pipeline[0].vocabulary_, 2)


def test_a_search_chooses_by_the_bound() -> None:
    counts = CountVectorizer().fit_transform(TEXTS)
    search = GridSearchCV(
        LatentDirichletAllocation(max_passes=3), {"num_topics": [1, 2]}, cv=2, error_score="raise"
    )
    search.fit(counts)
    assert search.best_params_["num_topics"] in (1, 2)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    inside = make_pipeline(LatentDirichletAllocation(max_passes=3))
    grid = {"latentdirichletallocation__num_topics": [1, 2]}
    assert (
        GridSearchCV(inside, grid, cv=2, error_score="raise").fit(counts).best_score_
        == search.best_score_
    )


def test_tags_say_what_it_takes() -> None:
    tags = get_tags(MODELS[0])
    assert (
        tags.input_tags.sparse and tags.input_tags.positive_only and not tags.target_tags.required
    )
    assert tags.estimator_type is None


def test_partial_fit_is_a_fit() -> None:
    model = LatentDirichletAllocation(2).partial_fit(np.eye(4))
    check_is_fitted(model)
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("learn", [True, False])
def test_partial_fit_learns_the_priors_that_a_stochastic_fit_learns(learn: bool) -> None:
    """Both take the same single step on all documents."""
    counts, settings = generated(), {"learn_topic_prior": learn, "learn_doc_prior": "symmetric"}
    fitted = LatentDirichletAllocation(3, method="stochastic", max_passes=1, **settings).fit(counts)
    partial = LatentDirichletAllocation(3, **settings).partial_fit(counts)
    np.testing.assert_allclose(partial.topic_prior_, fitted.topic_prior_, rtol=1e-6)
    np.testing.assert_allclose(partial.doc_prior_, fitted.doc_prior_, rtol=1e-6)
    assert (abs(partial.topic_prior_[0] - 1.0 / 3.0) > 0.01) == learn


def test_words_come_by_their_probability() -> None:
    counts = np.array([[9.0, 1.0, 5.0], [9.0, 1.0, 5.0]])
    model = LatentDirichletAllocation(1, max_passes=2).fit(counts)
    assert model.top_words(["a", "b", "c"], 3) == [["a", "c", "b"]]


@pytest.mark.parametrize(
    "vocabulary, n, message",
    [
        (["a", "b"], 1, "vocabulary has 2 words and the counts have 4 columns"),
        ("abcd", 1, "vocabulary is a string; pass a list of words"),
        ({"a": 0, "b": 1, "c": 2, "d": 4}, 1, "columns that are not 0, 1, 2"),
        (list("abcd"), 0, "n=0 must be a whole number of at least 1"),
        (list("abcd"), 5, "n=5 is more than the 4 words"),
    ],
)
def test_what_does_not_fit_is_refused(vocabulary: object, n: int, message: str) -> None:
    model = LatentDirichletAllocation(2, max_passes=1).fit(np.eye(4))
    with pytest.raises(DataError, match=message):
        model.top_words(vocabulary, n)
    with pytest.raises(DataError, match="no topics yet"):
        LatentDirichletAllocation(2).top_words(vocabulary, n)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_document_does_not_depend_on_the_others_of_a_call(model) -> None:
    """Half of the documents converge long before the rest."""
    counts = generated(40)
    fitted = clone(model).fit(counts)
    whole = fitted.transform(counts)
    for row in (0, 7, 39):
        np.testing.assert_allclose(fitted.transform(counts[row]), whole[row : row + 1], rtol=1e-9)
