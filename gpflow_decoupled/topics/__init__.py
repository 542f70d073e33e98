"""Topic models of documents: latent Dirichlet allocation and the correlated topic model.

Read `lda.py`, `topic_model.py` (shared methods), `fitting/document_passes.py`, `fitting/local.py`,
`proportions/dirichlet_proportions.py` in this order. `ctm.py` is the second model; `estimator.py`
has scikit-learn's methods, `topic_settings.py` and `counts.py` check inputs, `scores.py` scores.
`fitting/` and `proportions/` build on `words.py` (words to topics), `document_blocks.py`,
`documents.py`, `dirichlet_functions.py` and `dirichlet_priors.py`.
"""

from .counts import split_words
from .ctm import CorrelatedTopicModel
from .lda import LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]


def __dir__() -> list[str]:
    return sorted(__all__)
