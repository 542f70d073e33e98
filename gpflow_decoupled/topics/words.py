"""The words of a block of documents, and their topics: the step that all topic models share."""

from __future__ import annotations

__all__ = ["Assignment", "TopicWeights", "Words", "topic_weights"]

from typing import NamedTuple

import numpy as np
from scipy.special import psi

from .blocks import Block
from .proportions.dirichlet import expected_log, scaled_exp


class TopicWeights(NamedTuple):
    """exp E log beta, each word divided by its largest."""

    weights: np.ndarray
    """[V, K]"""
    shift: np.ndarray
    """[V] logarithm of the largest, nats"""


class Assignment(NamedTuple):
    """What the best phi of (T2) says of each document; phi itself is never stored."""

    ratios: np.ndarray
    """[b, W] n_dw / sum_k of the weights, so that n phi = ratio x weight of the document x weight of the word"""
    expected: np.ndarray
    """[b, K] sum_w n_dw phi_dwk"""
    evidence: np.ndarray
    """[b] sum_w n_dw log sum_k exp(...), the words' part of the bound at the best phi, nats"""


def topic_weights(parameters: np.ndarray, columns: np.ndarray | None = None) -> TopicWeights:
    """Of q(beta_k) = Dir(lambda_k), lambda [K, V]; of some words alone if `columns` are given."""
    if columns is None:
        mean_log = expected_log(parameters)  # (T1)
    else:
        mean_log = psi(parameters[:, columns]) - psi(parameters.sum(1, keepdims=True))  # (T1)
    return TopicWeights(*scaled_exp(np.ascontiguousarray(mean_log.T)))


class Words(NamedTuple):
    """Distinct words of b documents: weights in the topics [b, W, K], counts [b, W], and per document [b] the sums."""

    weights: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray
    """N_d"""
    shift: np.ndarray
    """sum_w n_dw x the shift of the word, nats"""

    @classmethod
    def gather(cls, block: Block, topics: TopicWeights) -> Words:
        """The words of a block; the weights are looked up once and used in all steps of a document."""
        shift = (block.counts * topics.shift[block.words]).sum(1, dtype=float)
        return cls(topics.weights.take(block.words, axis=0), block.counts, block.counts.sum(1), shift)

    def take(self, which: np.ndarray) -> Words:
        """The same of some documents, a mask or indices."""
        return Words(*(array[which] for array in self))

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """sum_k of document weights [b, K] = exp(E log theta) times those of each word, [b, W]."""
        return np.matmul(self.weights, weights[:, :, None])[..., 0]

    def expected(self, weights: np.ndarray, ratios: np.ndarray) -> np.ndarray:
        """sum_w n_dw phi_dwk [b, K] for ratios = counts / totals."""
        return weights * np.matmul(ratios[:, None, :], self.weights)[:, 0]  # (T2)

    def assign(self, weights: np.ndarray, shift: np.ndarray) -> Assignment:
        """At the best phi; `shift` [b] is the logarithm by which the weights of a document were divided."""
        totals = self.totals(weights)
        ratios = self.counts / totals
        evidence = (self.counts * np.log(totals)).sum(1, dtype=float) + self.lengths * shift + self.shift  # (T3)
        return Assignment(ratios, self.expected(weights, ratios), evidence)
