"""Topic models of documents: latent Dirichlet allocation and the correlated topic model.

Read `lda`, `topic_model` (shared methods), `fitting/document_passes`, `fitting/local`,
`proportions/dirichlet_proportions` in this order. `ctm` is the second model; `estimator` has
scikit-learn's methods, `topic_settings` and `counts` check inputs, `scores` scores. `fitting` and
`proportions` build on `words`, `document_blocks`, `documents`, `dirichlet_functions` and
`dirichlet_priors`.
"""

from .counts import split_words
from .ctm import CorrelatedTopicModel
from .lda import LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]


def __dir__() -> list[str]:
    return sorted(__all__)
