"""Small corpora of known topics."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def tiny() -> np.ndarray:
    """Seven words in three documents: every assignment of topics can be enumerated."""
    return np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


def generated(
    num: int = 60, words: int = 30, topics: int = 3, length: int = 40, seed: int = 0
) -> sp.csr_matrix:
    """Documents of `topics` topics, the first two of which go together."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(words, 0.1), topics)
    covariance = np.eye(topics)
    covariance[0, 1] = covariance[1, 0] = 0.9
    eta = 1.5 * rng.multivariate_normal(np.zeros(topics), covariance, num)
    theta = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    return sp.csr_matrix(
        np.array([rng.multinomial(length, row @ beta) for row in theta]).astype(float)
    )
