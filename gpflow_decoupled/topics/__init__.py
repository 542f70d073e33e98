"""Topic models: latent Dirichlet allocation and correlated topics, on sparse counts."""

from .counts import split_words
from .ctm import CorrelatedTopicModel
from .lda import LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]
