"""Topic models of documents: latent Dirichlet allocation and the correlated topic model.

Read `models`, then `topic_model`, their shared methods, `fitting` and `proportions`. `documents`
checks and splits word counts, `dirichlet` has Dirichlet distributions in NumPy, `ascent` steps
that keep each document's bound rising.
"""

from .documents import split_words
from .models import CorrelatedTopicModel, LatentDirichletAllocation

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation", "split_words"]


def __dir__() -> list[str]:
    return sorted(__all__)
