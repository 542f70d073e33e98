"""Likelihoods by name, with their checks of labels."""

from __future__ import annotations

__all__ = [
    "NAMES", "class_likelihood", "example_of", "likelihood_for", "most_classes", "num_latents_of",
    "prior_mean", "with_level",
]  # fmt: skip

from collections.abc import Callable, Mapping

import gpflow
import numpy as np
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Likelihood
from scipy.special import logsumexp, ndtri

from ..errors import DataError, check_option
from ..likelihoods import (
    AsymmetricLaplace,
    BernoulliLogit,
    BernoulliProbit,
    BetaBinomial,
    Binomial,
    CategoricalLogit,
    CensoredNormal,
    HurdleNegativeBinomial,
    HurdlePoisson,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Tweedie,
    Weibull,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
    check_labels,
)
from ..likelihoods.facts import has_latent_scale, num_classes
from ..models.checks import check_likelihood

_NOISE = 0.1
"""Variance at the start, of standardised Y; one for each output."""
_SCALE = 0.3  # the same as a deviation
NAMES: Mapping[str, Callable[[], Likelihood]] = {
    "gaussian": lambda: gpflow.likelihoods.Gaussian(_NOISE),
    "student_t": lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0),
    "laplace": lambda: Laplace(0.3),
    "quantile": lambda: AsymmetricLaplace(0.5, _SCALE),
    "tobit": lambda: CensoredNormal(0.3),
    "heteroskedastic": gpflow.likelihoods.HeteroskedasticTFPConditional,
    "bernoulli": BernoulliLogit,
    "probit": BernoulliProbit,
    "poisson": gpflow.likelihoods.Poisson,
    "negative_binomial": NegativeBinomial,
    "zero_inflated_poisson": ZeroInflatedPoisson,
    "zero_inflated_negative_binomial": ZeroInflatedNegativeBinomial,
    "hurdle_poisson": HurdlePoisson,
    "hurdle_negative_binomial": HurdleNegativeBinomial,
    "binomial": Binomial,
    "beta_binomial": BetaBinomial,
    "weibull": Weibull,
    "log_normal": LogNormal,
    "tweedie": Tweedie,
    "gamma": gpflow.likelihoods.Gamma,
    "exponential": gpflow.likelihoods.Exponential,
    "beta": gpflow.likelihoods.Beta,
}
"""Likelihoods without arguments, for standardised Y if it has a scale."""
_BY_CLASSES = {"multiclass": lambda: CategoricalLogit(2), "ordinal": lambda: Ordinal([0.0])}
"""Those that are made from the number of classes."""
_EXAMPLES = {**NAMES, **_BY_CLASSES}
_ELSEWHERE = {
    "binary": "bernoulli", "logistic": "bernoulli", "logit": "bernoulli", "normal": "gaussian",
    "regression": "gaussian", "classification": "multiclass", "categorical": "multiclass",
    "softmax": "multiclass", "ordered": "ordinal", "t": "student_t",
    "count": "poisson", "counts": "poisson", "lognormal": "log_normal", "censored": "tobit",
}  # fmt: skip
"""Names in other libraries."""
_LOG_LINKS = (
    "poisson", "negative_binomial", "zero_inflated_poisson", "zero_inflated_negative_binomial",
    "hurdle_poisson", "hurdle_negative_binomial", "weibull", "log_normal", "tweedie", "gamma",
    "exponential",
)  # fmt: skip
"""Names of likelihoods whose f is the logarithm of a mean, which may have any size."""


def example_of(given: str | Likelihood) -> Likelihood:
    """The likelihood that is passed; or by a name a new one, of two classes where it has any.

    :raises DataError: for other names and other objects.
    """
    if isinstance(given, str):
        check_option("likelihood", given, tuple(_EXAMPLES), _ELSEWHERE)
        return _EXAMPLES[given]()
    check_likelihood(given)
    return given


def most_classes(likelihood: str | Likelihood) -> int | None:
    """How many classes Y may have; 0 for as many as it has, None where it takes none."""
    return 0 if likelihood in _BY_CLASSES else num_classes(example_of(likelihood))


def with_level(likelihood: str | Likelihood, quantile: float | None) -> str | Likelihood:
    """The likelihood of a quantile of Y where its level is given, else `likelihood`.

    :param quantile: above 0 and below 1.
    """
    if quantile is None:
        return likelihood
    if likelihood != "quantile":
        raise DataError(
            f'quantile={quantile!r} is the level of likelihood="quantile", and the likelihood is'
            f' {likelihood!r}: pass likelihood="quantile", or leave the level out.'
        )
    return AsymmetricLaplace(quantile, _SCALE)


def likelihood_for(likelihood: str | Likelihood, Y: np.ndarray, rows: bool = False) -> Likelihood:
    """Return a new likelihood by name, or a copy of the one passed; "gaussian" has a noise variance
    for each output.

    :param likelihood: a name of `NAMES`, "multiclass", "ordinal", or a likelihood.
    :param Y: observations [N, P], as the likelihood will see them.
    :param rows: whether a `RowLikelihood` follows, which knows what Y may be.
    """
    made = example_of(likelihood)
    if made is likelihood:
        made = gpflow.utilities.deepcopy(made)
    elif likelihood == "multiclass":
        made = class_likelihood(_count_classes(Y))
    elif likelihood == "ordinal":
        shares = np.bincount(Y[:, 0].astype(int), minlength=_count_classes(Y)) / len(Y)
        made = Ordinal(np.sqrt(2.0) * ndtri(np.cumsum(shares)[:-1]))  # for f ~ N(0, 1)
    elif likelihood == "gaussian" and Y.shape[1] > 1:
        made = gpflow.likelihoods.Gaussian(np.full(Y.shape[1], _NOISE))
    if has_latent_scale(made) and Y.shape[1] > 1:
        raise DataError(
            f"Y has {Y.shape[1]} columns, and noise that varies with the inputs is learned for one:"
            " build a model for each column, of the rows that have it."
        )
    if not rows:
        check_labels(made, Y)
    return made


def prior_mean(
    likelihood: str | Likelihood, Y: np.ndarray, numbers: Mapping[str, np.ndarray] | None = None
) -> MeanFunction | None:
    """A constant mean function at the log of the mean of Y [N, P], or None where f is near 0.

    :param likelihood: a name; `_LOG_LINKS` have a mean of the size of exp(f).
    :param numbers: of the rows, by name, [N, 1] or [N, P]; a mean is per unit of exposure.
    """
    if likelihood not in _LOG_LINKS:
        return None
    numbers = numbers or {}
    least = 0.5 / len(Y)  # half an event in all rows
    share = ~np.isnan(Y) * numbers.get("weight", 1.0)
    share /= np.sum(share, axis=0)
    level = np.log(np.maximum(np.sum(share * np.nan_to_num(Y), axis=0), least))
    if "offset" in numbers:
        level -= logsumexp(numbers["offset"], axis=0, b=share)
    return gpflow.functions.Constant(level)


def num_latents_of(num_classes: int) -> int:
    """The number of latents L: one for two classes, else the number of classes."""
    return 1 if num_classes == 2 else num_classes


def class_likelihood(num_classes: int) -> Likelihood:
    """`BernoulliLogit` for two classes, else `CategoricalLogit` (softmax)."""
    return BernoulliLogit() if num_classes == 2 else CategoricalLogit(num_classes)


def _count_classes(Y: np.ndarray) -> int:
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
            " likelihood=gpflow_decoupled.likelihoods.CategoricalLogit(number_of_classes), or for"
            " grades Ordinal(edges)."
        )
    if len(found) < 2:
        raise DataError(
            "Y has one class, so that there is nothing to tell apart; pass rows of two classes at"
            " least."
        )
    return len(found)
