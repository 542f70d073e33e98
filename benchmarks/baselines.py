"""scikit-learn's classifiers as they come out of the box."""

from __future__ import annotations

__all__ = ["BASELINES", "train_baseline"]

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from .clock import clock
from .data import Data

BASELINES: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=1000),
    "forest": lambda seed: RandomForestClassifier(300, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}
"""Name -> classifier for a seed."""


def train_baseline(name: str, data: Data, seed: int) -> tuple[np.ndarray, float]:
    """Class probabilities [N_test, C], 0 for a class without training rows, and seconds of training."""
    classifier = BASELINES[name](seed)
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(data.X_train, data.Y_train[:, 0])
    seconds = clock() - start
    chances = np.zeros([len(data.X_test), data.num_classes])
    chances[:, classifier.classes_.astype(int)] = classifier.predict_proba(data.X_test)
    return chances, seconds
