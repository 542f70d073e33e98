"""Likelihoods by name, and the check of labels that belongs to each."""

from __future__ import annotations

__all__ = [
    "NAMES",
    "class_likelihood",
    "has_scale_by_name",
    "likelihood_for",
    "num_latents_of",
    "prior_mean",
]

from collections.abc import Callable, Mapping

import gpflow
import numpy as np
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Likelihood

from ..errors import DataError, check_option
from ..likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    CategoricalLogit,
    Laplace,
    NegativeBinomial,
    check_labels,
)
from ..models.checks import check_likelihood
from ..training.scales import has_scale

NAMES: Mapping[str, Callable[[], Likelihood]] = {
    "gaussian": lambda: gpflow.likelihoods.Gaussian(0.1),
    "student_t": lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0),
    "laplace": lambda: Laplace(0.3),
    "bernoulli": BernoulliLogit,
    "probit": BernoulliProbit,
    "poisson": gpflow.likelihoods.Poisson,
    "negative_binomial": NegativeBinomial,
    "gamma": gpflow.likelihoods.Gamma,
    "exponential": gpflow.likelihoods.Exponential,
    "beta": gpflow.likelihoods.Beta,
}
"""Likelihoods that need no argument, for standardised Y where it has a scale. "multiclass" counts
the classes of Y.
"""

_LOG_LINKS = ("poisson", "negative_binomial", "gamma", "exponential")
"""Names of those whose mean is exp(f), which may be of any size."""


def has_scale_by_name(likelihood: str | Likelihood) -> bool:
    """Whether Y may be shifted and scaled under a likelihood, see `training.scales.has_scale`.

    :param likelihood: a likelihood, or its name.
    :raises UnknownOptionError: for another name.
    :raises DataError: for what is no likelihood.
    """
    if isinstance(likelihood, str):
        check_option("likelihood", likelihood, (*NAMES, "multiclass"))
        return likelihood in NAMES and has_scale(NAMES[likelihood]())
    check_likelihood(likelihood)
    return has_scale(likelihood)


def likelihood_for(likelihood: str | Likelihood, Y: np.ndarray) -> Likelihood:
    """A likelihood of one's own from its name, or a copy of the one that was passed.

    :param likelihood: one of the names of `NAMES`, "multiclass", or a likelihood.
    :param Y: observations [N, P], as the likelihood will see them.
    :raises UnknownOptionError: for another name.
    :raises DataError: for labels outside of the support; for "multiclass", unless the labels are 0,
        1, ..., C - 1.

    Example::

        likelihood_for("multiclass", labels)  # CategoricalLogit(3) for labels 0, 1, 2
    """
    if not isinstance(likelihood, str):
        check_likelihood(likelihood)
        made = gpflow.utilities.deepcopy(likelihood)
    elif likelihood == "multiclass":
        made = class_likelihood(_count_classes(Y))
    else:
        check_option("likelihood", likelihood, (*NAMES, "multiclass"))
        made = NAMES[likelihood]()
    check_labels(made, Y)
    return made


def prior_mean(likelihood: str | Likelihood, Y: np.ndarray) -> MeanFunction | None:
    """A constant mean function that starts at the logarithm of the mean of Y [N, P], or None where
    f is near 0 by itself.

    :param likelihood: the name of a likelihood, whose mean is exp(f) if it is one of `_LOG_LINKS`;
    of one's own, None.
    """
    if likelihood not in _LOG_LINKS:
        return None
    least = 0.5 / len(Y)  # half an event in all rows
    return gpflow.functions.Constant(np.log(np.maximum(np.mean(Y, axis=0), least)))


def num_latents_of(num_classes: int) -> int:
    """L for a number of classes: one for two, as many as classes for more."""
    return 1 if num_classes == 2 else num_classes


def class_likelihood(num_classes: int) -> Likelihood:
    """A Bernoulli likelihood with a logistic link for two classes, a `CategoricalLogit` (softmax)
    for more.
    """
    return BernoulliLogit() if num_classes == 2 else CategoricalLogit(num_classes)


def _count_classes(Y: np.ndarray) -> int:
    """The number of classes of labels Y [N, 1], all of which must be there."""
    if Y.shape[1] != 1:
        raise DataError(
            f"Y has {Y.shape[1]} columns; for classes pass one, their numbers: np.argmax(Y,"
            " axis=1)[:, None]."
        )
    found = np.unique(Y)
    if not np.array_equal(found, np.arange(len(found))):
        shown = ", ".join(f"{value:g}" for value in found[:4]) + (", ..." if len(found) > 4 else "")
        raise DataError(
            f"Y has the labels {shown}; classes are 0, 1, 2, ... with none left out. Number them by"
            " np.unique(Y, return_inverse=True)[1].reshape(-1, 1); or, if some class has no row"
            " here, pass"
            " likelihood=gpflow_decoupled.likelihoods.CategoricalLogit(number_of_classes)."
        )
    if len(found) < 2:
        raise DataError(
            "Y has one class, so that there is nothing to tell apart; pass rows of two classes at"
            " least."
        )
    return len(found)
