"""Bags of words: text from a folder of NAME.npz files, or generated documents of known topics."""

from __future__ import annotations

__all__ = ["Corpus", "corpus", "generate"]

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from gpflow_decoupled.topics import split_words

from ...harness.data import FOLDER_VARIABLE


class Corpus(NamedTuple):
    """Training documents, and test documents whose words are split in two."""

    train: sp.csr_matrix
    observed: sp.csr_matrix
    held_out: sp.csr_matrix
    vocabulary: np.ndarray


def corpus(name: str, test_share: float, seed: int, folder: str | Path | None = None) -> Corpus:
    """Read or generate a corpus, and split its documents.

    :param name: of a file in `folder`, or "generated".
    :param test_share: share of the documents that are test documents.
    :raises ValueError: if a folder is needed and none is named.
    :raises FileNotFoundError: if the folder has no file NAME.npz.
    """
    counts, vocabulary = generate(250, seed) if name == "generated" else _read(name, folder)
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    first = max(1, round(test_share * len(order)))
    return Corpus(counts[order[first:]], *split_words(counts[order[:first]], seed=seed), vocabulary)


def generate(
    num: int, seed: int, words: int = 300, topics: int = 6
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Counts [num, words] of documents whose topics are correlated in pairs, and the vocabulary."""
    generator = np.random.default_rng(seed)
    beta = generator.dirichlet(np.full(words, 0.05), topics)
    factors = np.kron(np.eye(topics // 2), np.ones((1, 2)))
    eta = 1.8 * generator.standard_normal(
        (num, topics // 2)
    ) @ factors + 0.5 * generator.standard_normal((num, topics))
    theta = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    counts = np.array(
        [generator.multinomial(generator.poisson(80) + 2, row @ beta) for row in theta]
    )
    return sp.csr_matrix(counts.astype(float)), np.array([f"word{place}" for place in range(words)])


def _read(name: str, folder: str | Path | None) -> tuple[sp.csr_matrix, np.ndarray]:
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise ValueError(
            f"Corpus {name!r} needs a folder of NAME.npz files: name one by --data or"
            f" {FOLDER_VARIABLE}, or use generated."
        )
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"The data folder has no file {path.name}; name another folder or another corpus."
        )
    with np.load(path, allow_pickle=False) as file:
        cells = (file["count"].astype(float), (file["doc"], file["word"]))
        return sp.csr_matrix(cells, shape=tuple(file["shape"])), file["vocab"]
