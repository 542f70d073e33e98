"""Topic models of documents: latent Dirichlet allocation and the correlated topic model, on sparse
matrices of word counts.

`lda.py` and `ctm.py` are the two models, `model.py` the methods that they share, `estimator.py`
what scikit-learn asks besides, `options.py` and `counts.py` the checks of their input, `scores.py`
the held-out score. `proportions/` has the posteriors over the topic proportions of documents,
`fitting/` the passes over the documents; both build on `words.py` (the step that assigns words to
topics), `blocks.py` (documents in rectangles), `documents.py`, `dirichlet.py` and `priors.py`. Read
`lda.py`, `model.py`, `fitting/passes.py`, `fitting/local.py` and `proportions/dirichlet.py` in this
order.
"""

from .counts import split_words
from .ctm import CorrelatedTopicModel
from .lda import LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]


def __dir__() -> list[str]:
    return sorted(__all__)
