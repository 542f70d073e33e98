"""scikit-learn's classifiers with their default settings."""

from __future__ import annotations

__all__ = ["BASELINES", "train_baseline"]

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ..harness.data import Data
from ..harness.machine import clock

BASELINES: dict[str, Callable[[int], ClassifierMixin]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=1000),
    "forest": lambda seed: RandomForestClassifier(300, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}
"""Name -> function from a seed to a classifier."""


def train_baseline(name: str, data: Data, seed: int) -> tuple[np.ndarray, float]:
    """Train one of `BASELINES`.

    :return: class probabilities of the test rows [N_test, C], which are 0 for a class without
        training rows, and seconds of training.
    """
    classifier = BASELINES[name](seed)
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(data.X_train, data.Y_train[:, 0])
    seconds = clock() - start
    chances = np.zeros([len(data.X_test), data.num_classes])
    chances[:, classifier.classes_.astype(int)] = classifier.predict_proba(data.X_test)
    return chances, seconds
