"""Probabilities of K classes from the predictions of a model with one latent function for two of
them, K for more.
"""

from __future__ import annotations

__all__ = ["class_probabilities"]

import numpy as np


def class_probabilities(predicted: np.ndarray) -> np.ndarray:
    """Class probabilities [N, K] from the mean of `predict_y`.

    :param predicted: [N, 1] for two classes, the probability of the second; else [N, K], whose rows
        quadrature leaves 1e-6 or so away from a sum of 1.
    """
    if predicted.shape[1] == 1:
        return np.concatenate([1.0 - predicted, predicted], axis=1)
    return predicted / predicted.sum(axis=1, keepdims=True)
