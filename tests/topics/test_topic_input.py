"""What topic models refuse, before any work and with the former fit untouched; and the conventions
of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation, split_words
from tests.topics.corpora import generated

COUNTS = generated(20, 8, length=10).toarray()


def _with(row: int, column: Any, value: float) -> np.ndarray:
    counts = COUNTS.copy()
    counts[row, column] = value
    return counts


BAD_COUNTS = {
    "negative": (_with(0, 1, -2.0), r"X has negative counts \(least -2\)"),
    "NaN": (_with(0, 1, np.nan), "X has counts that are NaN or infinite"),
    "one document": (COUNTS[0], r"X has shape \(8,\); it must be a matrix \[documents, words\]"),
    "no documents": (COUNTS[:0], r"X has shape \(0, 8\)"),
    "text": (np.array([["a", "b"]]), "X must be a matrix .* of counts"),
}
BAD_SETTINGS = {
    "num_topics": (0, DataError, "num_topics=0 must be a whole number of at least 1"),
    "max_passes": (2.5, DataError, "max_passes=2.5 must be a whole number"),
    "batch_size": (0, DataError, "batch_size=0"),
    "fresh_passes": (-1, DataError, "fresh_passes=-1"),
    "max_local_steps": (True, DataError, "max_local_steps=True"),
    "num_documents": (0, DataError, "num_documents=0"),
    "delay": (-1.0, DataError, r"delay=-1.0 must be a number of at least 0"),
    "forgetting_rate": (0.5, DataError, r"forgetting_rate=0.5 must be a number in \(0.5, 1\]"),
    "tolerance": (np.nan, DataError, "tolerance=nan"),
    "local_tolerance": ("small", DataError, "local_tolerance='small'"),
    "method": (
        "online",
        UnknownOptionError,
        "method='online' is not known; use one of 'batch', 'stochastic'",
    ),
    "start": ("kmeans", UnknownOptionError, "start='kmeans' is not known"),
    "learn_doc_prior": ("yes", UnknownOptionError, "learn_doc_prior='yes'"),
    "doc_prior": (
        [0.1, 0.2],
        DataError,
        r"doc_prior has shape \(2,\); it must be a number or have shape \(3,\)",
    ),
    "topic_prior": (0.0, DataError, "topic_prior must be finite and above 0"),
}
BAD_CORRELATED = {
    "num_topics": (1, DataError, "num_topics=1 must be a whole number of at least 2"),
    "posterior": ("laplace", UnknownOptionError, "posterior='laplace'"),
    "prior_variance": (0.0, DataError, "prior_variance must be finite and above 0; it is 0.0"),
    "start_passes": (-1, DataError, "start_passes=-1"),
}


@pytest.mark.parametrize("name", [*BAD_COUNTS, "negative, sparse"])
def test_bad_counts_are_refused_and_the_fit_stays(name: str) -> None:
    counts, message = BAD_COUNTS[name.removesuffix(", sparse")]
    counts = sp.coo_matrix(counts) if name.endswith("sparse") else counts
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
def test_bad_settings_are_refused_and_the_fit_stays(kind: type, table: dict) -> None:
    model = kind(3, max_passes=1).fit(COUNTS)
    before = model.components_.copy()
    for name, (value, error, message) in table.items():
        good = model.get_params()[name]
        model.set_params(**{name: value})
        for verb in (model.fit,) if name == "topic_prior" else (model.fit, model.partial_fit):
            with pytest.raises(error, match=message):
                verb(COUNTS)
        model.set_params(**{name: good})
    np.testing.assert_array_equal(model.components_, before)


def test_other_vocabularies_and_other_documents_are_refused() -> None:
    model = LatentDirichletAllocation(3, max_passes=1)
    with pytest.raises(DataError, match="has no topics yet; call fit or partial_fit first"):
        model.transform(COUNTS)
    model.fit(COUNTS)
    for verb in (model.partial_fit, model.transform, model.score):
        with pytest.raises(
            DataError, match=r"X has 7 words \(columns\) and the topics were fitted on 8"
        ):
            verb(COUNTS[:, :7] + 1.0)
    with pytest.raises(DataError, match="held_out has 5 documents"):
        model.perplexity(COUNTS, COUNTS[:5])
    with pytest.raises(DataError, match="held_out has 7 words"):
        model.perplexity(COUNTS, COUNTS[:, :7])


def test_words_that_cannot_be_split_are_refused() -> None:
    with pytest.raises(DataError, match="share=1.0 must lie between 0 and 1"):
        split_words(COUNTS, 1.0)
    with pytest.raises(DataError, match="counts that are not whole"):
        split_words(COUNTS + 0.5)
    with pytest.raises(DataError, match="No document of X has words in both parts"):
        split_words(np.eye(3))


def test_weights_in_place_of_counts_scale_the_bound() -> None:
    """Counts need not be whole, and a repeated or stored zero cell changes nothing."""
    model = LatentDirichletAllocation(3, max_passes=3, tolerance=0.0)
    whole = model.fit(COUNTS).components_
    rows, columns = np.nonzero(COUNTS)
    values, halves = COUNTS[rows, columns], (np.r_[rows, rows, 0], np.r_[columns, columns, 0])
    cells = sp.coo_matrix((np.r_[values / 2, values / 2, 0.0], halves), shape=COUNTS.shape)
    np.testing.assert_allclose(model.fit(cells).components_, whole, rtol=1e-12)
    assert np.isfinite(model.fit(0.37 * COUNTS).bound_)


def test_what_is_passed_is_left_alone() -> None:
    counts = sp.csr_matrix(COUNTS)
    before = counts.copy()
    LatentDirichletAllocation(3, max_passes=2).fit(counts).transform(counts)
    assert (counts != before).nnz == 0


@pytest.mark.parametrize("kind", [LatentDirichletAllocation, CorrelatedTopicModel])
def test_parameters_as_in_scikit_learn(kind: type) -> None:
    base = pytest.importorskip("sklearn.base")
    model = kind(4, topic_prior=0.3, seed=5)
    other = base.clone(model)
    assert type(other) is kind and other is not model and other.get_params() == model.get_params()
    assert model.set_params(num_topics=2).get_params()["num_topics"] == 2
    with pytest.raises(
        UnknownOptionError, match=r"\['n_components'\] are not arguments of .*; it has num_topics"
    ):
        model.set_params(n_components=3)
    theta = model.set_params(max_passes=2).fit_transform(COUNTS)
    assert theta.shape == (20, 2) and repr(model).startswith(f"{kind.__name__}(num_topics=2")


def test_progress_is_shown_where_asked(capsys: pytest.CaptureFixture) -> None:
    LatentDirichletAllocation(2, max_passes=2).fit(COUNTS)
    assert capsys.readouterr().err == ""
    LatentDirichletAllocation(2, max_passes=2, tolerance=0.0, fresh_passes=0, progress=True).fit(
        COUNTS
    )
    assert "2/2" in capsys.readouterr().err
