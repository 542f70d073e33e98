"""The confidence of predicted classes, by leave-one-out."""

# Sites of several classes are found for each class alone, and few neighbours leave wide variances:
# predictions are then right more often than they say. On digits, 99.4 % of the test rows right,
# the log loss was 0.132 as found and 0.044 with the factors.

from __future__ import annotations

__all__ = ["calibrate_labels"]

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from ...models.neighbours import SiteNNGP
from ...replicas import Group
from .judgement import CERTAIN
from .label_densities import LabelDensities

_EVALUATIONS = 60
_LARGEST = np.log(30.0)
"""Of the logarithms of the factors."""


def calibrate_labels(model: SiteNNGP, rows: np.ndarray, group: Group | None = None) -> bool:
    """Find the factors of mean and variance of f with which left-out classes are predicted best.

        p(y | x) = int p(y | f) N(f; a m, b v) df

    Temperature scaling (Guo et al. 2017, section 4.2) with a second factor. Rows of labels decide,
    not the evidence: more confidence than the model has is taken where it was right. The factors
    stay one where they gain nothing beyond chance, two standard errors.

    :param model: at its final Parameters and sites; without factors nothing is done.
    :param rows: row numbers [B], some 1,000.
    :param group: the workers, which share the rows.
    :return: True if the factors were changed. Cost: as `leave_one_out`, and 100 draws of
        f in B rows for each of 60 evaluations.

    Example::

        calibrate_labels(model, np.arange(1000))
    """
    if model.mean_factor is None or model.variance_factor is None:
        return False
    mean, variance = (group or Group()).over_rows(
        lambda some: list(model.left_out(some, mean=model.mean)), rows
    )
    densities = LabelDensities(model.likelihood, *(tf.gather(part, rows) for part in model.data))

    def scores(x: np.ndarray) -> np.ndarray:
        a, b = np.exp(np.clip(x, -_LARGEST, _LARGEST))
        return densities(a * mean, b * variance)

    found = minimize(
        lambda x: -float(np.mean(scores(x))),
        np.zeros(2),
        method="Nelder-Mead",
        options={
            "maxfev": _EVALUATIONS,
            "initial_simplex": [[0.0, 0.0], [0.5, 0.0], [0.0, -0.5]],
            "xatol": 0.02,
            "fatol": 1e-4,
        },
    )
    gains = scores(found.x) - scores(np.zeros(2))
    certain = np.mean(gains) > CERTAIN * np.std(gains) / np.sqrt(len(gains))
    x = np.clip(found.x, -_LARGEST, _LARGEST) if certain else np.zeros(2)
    for factor, value in zip((model.mean_factor, model.variance_factor), np.exp(x)):
        factor.assign(value)
    return bool(certain)
