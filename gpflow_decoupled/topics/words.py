"""The words of a block of documents, and their assignment to topics."""

# The best assignment phi_dwk is exp E log theta_dk times exp E log beta_kw, normalised over k,
# (T2). Only its sums are stored.

from __future__ import annotations

__all__ = ["Assignment", "TopicWeights", "Words", "topic_weights"]

from typing import NamedTuple

import numpy as np
from scipy.special import psi

from .dirichlet_functions import expected_log, scaled_exp
from .document_blocks import Block


class TopicWeights(NamedTuple):
    """The weights exp E log beta_kw, divided by each word's largest."""

    weights: np.ndarray
    """[V, K]"""
    shift: np.ndarray
    """Logarithm of the largest [V], nats."""


class Assignment(NamedTuple):
    """Sums over the best phi of (T2) in each document."""

    ratios: np.ndarray
    """n_dw over the sum over topics [b, W]: n phi = ratio x document's weight x word's weight."""
    expected: np.ndarray
    """sum_w n_dw phi_dwk [b, K]."""
    evidence: np.ndarray
    """sum_w n_dw log sum_k exp(E log theta_dk + E log beta_kw) [b], the words' part of the bound at
    the best phi, nats.
    """


def topic_weights(parameters: np.ndarray, columns: np.ndarray | None = None) -> TopicWeights:
    """The weights for q(beta_k) = Dir(lambda_k).

    :param parameters: lambda [K, V].
    """
    if columns is None:
        mean_log = expected_log(parameters)  # (T1)
    else:
        mean_log = psi(parameters[:, columns]) - psi(parameters.sum(1, keepdims=True))  # (T1)
    return TopicWeights(*scaled_exp(np.ascontiguousarray(mean_log.T)))


class Words(NamedTuple):
    """The distinct words of b documents."""

    weights: np.ndarray
    """Weights of each word in the topics [b, W, K]."""
    counts: np.ndarray
    """n_dw [b, W]."""
    lengths: np.ndarray
    """N_d [b], all words of a document."""
    shift: np.ndarray
    """sum_w n_dw x the shift of the word [b], nats."""

    @classmethod
    def gather(cls, block: Block, topics: TopicWeights) -> Words:
        """The words of a block, with weights looked up once for all steps."""
        shift = (block.counts * topics.shift[block.words]).sum(1, dtype=float)
        return cls(
            topics.weights.take(block.words, axis=0), block.counts, block.counts.sum(1), shift
        )

    def take(self, which: np.ndarray) -> Words:
        """The words of some documents, by a mask or indices."""
        return Words(*(array[which] for array in self))

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """Per word, the sum over topics of document weights [b, K] times word weights: [b, W]."""
        return np.matmul(self.weights, weights[:, :, None])[..., 0]

    def expected(self, weights: np.ndarray, ratios: np.ndarray) -> np.ndarray:
        """sum_w n_dw phi_dwk [b, K], for ratios = counts / totals [b, W]."""
        return weights * np.matmul(ratios[:, None, :], self.weights)[:, 0]  # (T2)

    def assign(self, weights: np.ndarray, shift: np.ndarray) -> Assignment:
        """Return the sums at the best phi.

        Weights of the topics [b, K] are divided by the largest, whose logarithm is `shift` [b].
        """
        totals = self.totals(weights)
        ratios = self.counts / totals
        evidence = (
            (self.counts * np.log(totals)).sum(1, dtype=float) + self.lengths * shift + self.shift
        )  # (T3)
        return Assignment(ratios, self.expected(weights, ratios), evidence)
