"""Which observations a likelihood accepts, so that labels outside its support are refused before step 1."""

from __future__ import annotations

__all__ = ["check_labels", "observation_columns"]

from collections.abc import Callable

import numpy as np
from gpflow import likelihoods as gl

from ..errors import DataError
from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .negative_binomial import NegativeBinomial


def _integers(Y: np.ndarray, low: float, high: float) -> np.ndarray:
    return (Y == np.round(Y)) & (Y >= low) & (Y <= high)


def _rule(likelihood: gl.Likelihood) -> tuple[str, Callable[[np.ndarray], np.ndarray]] | None:
    """(the support in words, a test of each entry), or None where every real number is accepted."""
    if isinstance(likelihood, (gl.Bernoulli, BernoulliLogit, BernoulliProbit)):
        return "0 or 1", lambda Y: (Y == 0) | (Y == 1)
    if isinstance(likelihood, (gl.Poisson, NegativeBinomial)):
        return "counts 0, 1, 2, ...", lambda Y: _integers(Y, 0, np.inf)
    if isinstance(likelihood, (gl.MultiClass, gl.Softmax)):
        classes = int(likelihood.num_classes)
        return f"whole numbers 0 to {classes - 1}", lambda Y: _integers(Y, 0, classes - 1)
    if isinstance(likelihood, gl.Ordinal):
        bins = int(likelihood.num_bins)
        return f"whole numbers 0 to {bins - 1}", lambda Y: _integers(Y, 0, bins - 1)
    if isinstance(likelihood, gl.Exponential):
        return "numbers of at least 0", lambda Y: Y >= 0
    if isinstance(likelihood, gl.Gamma):
        return "numbers above 0", lambda Y: Y > 0
    if isinstance(likelihood, gl.Beta):
        return "numbers strictly between 0 and 1", lambda Y: (Y > 0) & (Y < 1)
    return None


def check_labels(likelihood: gl.Likelihood, Y: np.ndarray) -> None:
    """Raise `DataError` if any entry of Y [N, P] lies outside the likelihood's support; it names one and the fix."""
    if isinstance(likelihood, gl.SwitchedLikelihood):
        tasks = len(likelihood.likelihoods)
        inside = _integers(Y[:, -1], 0, tasks - 1)
        if not np.all(inside):
            raise DataError(f"The last column of Y picks the likelihood; it must hold whole numbers 0 to {tasks - 1}.")
        for task, part in enumerate(likelihood.likelihoods):
            check_labels(part, Y[Y[:, -1] == task, :-1])
        return
    rule = _rule(likelihood)
    if rule is None:
        return
    support, accepts = rule
    outside = ~accepts(Y)
    if np.any(outside):
        row, column = np.argwhere(outside)[0]
        raise DataError(
            f"Y[{row}, {column}] = {Y[row, column]:g} is outside the support of {type(likelihood).__name__}, which takes "
            f"{support}; recode Y ({int(outside.sum())} entries are outside)."
        )


def observation_columns(likelihood: gl.Likelihood, num_outputs: int) -> int | None:
    """The number of columns Y must have for P outputs, or None where the likelihood leaves it open."""
    if isinstance(likelihood, gl.SwitchedLikelihood):
        return num_outputs + 1
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    if isinstance(likelihood, gl.ScalarLikelihood):
        return num_outputs
    return 1 if isinstance(likelihood, (gl.MultiClass, gl.Softmax, gl.HeteroskedasticTFPConditional)) else None
