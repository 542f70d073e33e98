"""Scores on held-out words."""

from __future__ import annotations

__all__ = ["completion"]

import numpy as np
import scipy.sparse as sp

_CELLS = 1 << 14  # counts at a time


def completion(proportions: np.ndarray, topics: np.ndarray, held_out: sp.csr_matrix) -> float:
    """Mean of log sum_k theta_dk beta_kw over held-out words, in nats per word.

    Proportions are [D, K], topics [K, V], counts [D, V].
    """
    rows = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    words = np.ascontiguousarray(topics.T)
    total = 0.0
    # the products of a million cells would not fit into memory
    for first in range(0, held_out.nnz, _CELLS):
        part = slice(first, first + _CELLS)
        chances = np.einsum(
            "nk,nk->n", proportions[rows[part]], words[held_out.indices[part]], dtype=float
        )
        total += float(held_out.data[part] @ np.log(chances))
    return total / float(held_out.sum(dtype=float))
