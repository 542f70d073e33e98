"""Topic models of documents: latent Dirichlet allocation and the correlated topic model.

Read `models`, then `proportions`, the families of q of a document, and `documents`, word counts in
blocks.
"""

from .documents import split_words
from .models import CorrelatedTopicModel, LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]


def __dir__() -> list[str]:
    return sorted(__all__)
