"""What all approximations work on: binary labels under a logistic link, and counts."""

from __future__ import annotations

__all__ = ["coal", "labels"]

import argparse

import numpy as np

from ...harness.data import raw
from ..full_gp.problems import TASKS, Problem, make_problem

_BINS = 3
"""Bins of `coal`, of four months each, that are merged into one."""


def labels(options: argparse.Namespace, num_data: int) -> Problem:
    """At most `num_data` rows of a data set, standardised, with a lengthscale of the square root of
    their columns.

    A task of the full-GP suite has its own scale and lengthscale, and held-out rows among its rows.
    """
    name = options.task or ("ionosphere" if options.data else "breast_cancer_sklearn")
    if name in TASKS:
        return make_problem(
            name, num_data, options.data, variance=options.variance, exact=True, seed=options.seed
        )
    X, Y = raw(name, options.data)
    rows = np.random.default_rng(options.seed).permutation(len(X))[:num_data]
    X, Y = np.asarray(X[rows], float), np.asarray(Y, float).reshape(len(X), -1)[rows, :1]
    X = X[:, np.ptp(X, axis=0) > 0.0]
    X = (X - X.mean(0)) / X.std(0)
    lengthscale, everywhere = float(np.sqrt(X.shape[1])), np.zeros(len(X), bool)
    return Problem(name, X, Y, everywhere, lengthscale, options.variance, exact=True)


def coal(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Disasters in coal mines by year [N, 1], and their counts [N, 1]."""
    X, Y = raw("coal", options.data)
    count = len(X) // _BINS
    X, Y = (np.asarray(array, float)[: count * _BINS, 0].reshape(count, _BINS) for array in (X, Y))
    return X.mean(1, keepdims=True), Y.sum(1, keepdims=True)
