"""The contract of posteriors over proportions."""

from __future__ import annotations

__all__ = ["DocumentBounds", "Proportions"]

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..documents import PerDocument
from ..words import Words

State = TypeVar("State", bound=PerDocument)


class DocumentBounds(PerDocument, Protocol):
    """Quantities of each document at a state."""

    @property
    def bound(self) -> np.ndarray:
        """F_d [b], the document's terms of the bound, nats."""

    @property
    def weights(self) -> np.ndarray:
        """Weights of the topics in each document [b, K], up to a factor per document."""

    @property
    def ratios(self) -> np.ndarray:
        """Counts over the sum of weights over topics [b, W]; see `words.Assignment`."""


class Proportions(Protocol[State]):
    """The prior of the proportions theta_d, and the local step for q(theta_d).

    A state is a NamedTuple of arrays [b, ...], the parameters of q(theta_d) of b documents.
    """

    @property
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> State:
        """The state before the first step."""

    def converge(self, words: Words, state: State, tolerance: float, max_steps: int) -> State:
        """Step at fixed topics until expected words per topic change by less than `tolerance`."""

    def evaluate(self, words: Words, state: State) -> DocumentBounds:
        """The bound of each document, at the best assignment of its words to topics."""

    def mean(self, state: State) -> np.ndarray:
        """E theta_d [b, K]."""

    @property
    def log_prior(self) -> float:
        """Log density of the learned parameters under their prior, in nats; 0 without one."""

    def learned(
        self, state: State, rate: float = 1.0, documents: float | None = None
    ) -> Proportions[State]:
        """Return the best prior for these documents, or a step of size `rate` towards it.

        `documents` is the size of the corpus that they stand for, by default their number.
        """
