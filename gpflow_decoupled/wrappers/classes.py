"""Class probabilities from predictions."""

from __future__ import annotations

__all__ = ["class_probabilities"]

import numpy as np


def class_probabilities(predicted: np.ndarray) -> np.ndarray:
    """Return class probabilities [N, K] from the mean of `predict_y`.

    :param predicted: [N, 1], the probability of the second of two classes; else [N, K], whose rows
        sum to 1 up to quadrature errors of 1e-6.
    """
    if predicted.shape[1] == 1:
        return np.concatenate([1.0 - predicted, predicted], axis=1)
    return predicted / predicted.sum(axis=1, keepdims=True)
