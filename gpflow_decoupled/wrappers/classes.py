"""Likelihood and probabilities of K classes: one latent function for two of them, K for more."""

from __future__ import annotations

__all__ = ["class_likelihood", "class_probabilities", "num_latents_of"]

import gpflow
import numpy as np
from gpflow.likelihoods import Likelihood

from ..likelihoods import BernoulliLogit


def num_latents_of(num_classes: int) -> int:
    """L for K classes."""
    return 1 if num_classes == 2 else num_classes


def class_likelihood(num_classes: int) -> Likelihood:
    """A Bernoulli likelihood with a logistic link for two classes, GPflow's `MultiClass` (robust maximum) for more."""
    return BernoulliLogit() if num_classes == 2 else gpflow.likelihoods.MultiClass(num_classes)


def class_probabilities(predicted: np.ndarray) -> np.ndarray:
    """Class probabilities [N, K] from the mean of `predict_y`.

    :param predicted: [N, 1] for two classes, the probability of the second; else [N, K], whose rows quadrature leaves 1e-6 or
        so away from a sum of 1.
    """
    if predicted.shape[1] == 1:
        return np.concatenate([1.0 - predicted, predicted], axis=1)
    return predicted / predicted.sum(axis=1, keepdims=True)
