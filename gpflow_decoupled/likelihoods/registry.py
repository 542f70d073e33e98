"""Which likelihoods are log-concave in f."""

from __future__ import annotations

__all__ = [
    "check_labels", "declare_site", "declare_site_loss", "index_columns", "is_log_concave",
    "is_logit", "likelihood_site", "observation_columns", "site_description", "site_loss",
]  # fmt: skip

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Gaussian, Likelihood

from ..errors import DataError
from ..expectations.projections import Site
from ..summaries import short_repr
from .bernoulli import LOGIT, PROBIT, BernoulliLogit, BernoulliProbit, bernoulli_sites, logit_sites
from .categorical import CategoricalLogit, categorical_sites
from .count_sites import (
    BETA_BINOMIAL,
    BINOMIAL,
    HURDLE,
    NEGATIVE_BINOMIAL,
    TWEEDIE,
    ZERO_INFLATED,
    exponential_sites,
    gamma_sites,
    poisson_sites,
)
from .counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .gpflow_sites import GAUSSIAN, STUDENT_T, beta_sites
from .laplace import HINGE, LAPLACE, QUANTILE, AsymmetricLaplace, Hinge, Laplace
from .ordinal import Ordinal, ordinal_sites
from .parameters import BINARY, UNIT_INTERVAL, NumberedLikelihood, Support, classes
from .row_likelihood import RowLikelihood
from .site_loss import (
    DensityBuilder,
    SiteDescription,
    SiteLoss,
    SiteLossBuilder,
    check_one_latent,
    site_labels,
)
from .survival import CENSORED_NORMAL, LOG_NORMAL, WEIBULL, CensoredNormal, LogNormal, Weibull
from .tweedie import Tweedie

# ---
# Site descriptions by class of likelihoods.


# Any for the reason that `description.SiteLossBuilder` has
Describe = Callable[[Any], SiteDescription]
"""likelihood -> description, since options such as its inverse link matter."""

_DESCRIPTIONS: dict[type[gl.Likelihood], Describe] = {
    gl.Gaussian: lambda _: GAUSSIAN,
    gl.StudentT: lambda _: STUDENT_T,
    gl.Bernoulli: bernoulli_sites,
    gl.Poisson: poisson_sites,
    gl.Exponential: exponential_sites,
    gl.Gamma: gamma_sites,
    gl.Beta: beta_sites,
    gl.Ordinal: lambda likelihood: SiteDescription(support=classes(int(likelihood.num_bins))),
    gl.MultiClass: lambda likelihood: SiteDescription(support=classes(int(likelihood.num_classes))),
    gl.Softmax: lambda likelihood: SiteDescription(support=classes(int(likelihood.num_classes))),
    AsymmetricLaplace: lambda _: QUANTILE,
    BernoulliLogit: logit_sites,
    BernoulliProbit: lambda _: PROBIT,
    BetaBinomial: lambda _: BETA_BINOMIAL,
    Binomial: lambda _: BINOMIAL,
    CategoricalLogit: categorical_sites,
    CensoredNormal: lambda _: CENSORED_NORMAL,
    Hinge: lambda _: HINGE,
    HurdleNegativeBinomial: lambda _: HURDLE,
    HurdlePoisson: lambda _: HURDLE,
    Laplace: lambda _: LAPLACE,
    LogNormal: lambda _: LOG_NORMAL,
    NegativeBinomial: lambda _: NEGATIVE_BINOMIAL,
    Ordinal: ordinal_sites,
    Tweedie: lambda _: TWEEDIE,
    Weibull: lambda _: WEIBULL,
    ZeroInflatedNegativeBinomial: lambda _: ZERO_INFLATED,
    ZeroInflatedPoisson: lambda _: ZERO_INFLATED,
}


def declare_site(
    kind: type[gl.Likelihood],
    *,
    loss: SiteLossBuilder | None = None,
    density: DensityBuilder | None = None,
    support: Support | None = None,
) -> None:
    """Declare the sites of a class of likelihoods, and of subclasses with its log density.

    Omitted arguments keep their declaration. Without one a likelihood works in all models but
    `LCLGP`.

    :param kind: a class of likelihoods with one latent function per observation.
    :param loss: (likelihood, Y [N, L]) -> its `SiteLoss`, for `LCLGP`; a `QuadratureLoss` serves
        most.
    :param density: (likelihood, Y [N]) -> its log density as a `Site` with a closed Fourier
        transform, for the route "frequency_sum" of `AffineIndependentGP`.
    :param support: valid labels; by default every number.

    Example, for a convex -log p(y | f) with derivatives between -1 and 1::

        declare_site(
            Huber,
            loss=lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0),
        )
    """
    if not (isinstance(kind, type) and issubclass(kind, gl.Likelihood)):
        raise DataError(
            f"{short_repr(kind)} is not a class of likelihoods; pass the class, not a likelihood."
        )
    describe = _DESCRIPTIONS.get(kind, lambda _: SiteDescription())

    def declared(likelihood: gl.Likelihood) -> SiteDescription:
        before = describe(likelihood)
        return SiteDescription(
            loss or before.loss, density or before.density, support or before.support
        )

    _DESCRIPTIONS[kind] = declared


def site_description(likelihood: gl.Likelihood) -> SiteDescription:
    """Return the description of a likelihood's sites."""
    # Loss and density come from the nearest class with the same log density, the support from the
    # nearest with one.
    kinds = [kind for kind in type(likelihood).__mro__ if kind in _DESCRIPTIONS]
    found = [_DESCRIPTIONS[kind](likelihood) for kind in kinds]
    support = next(
        (description.support for description in found if description.support is not None), None
    )
    if not found or _log_density(kinds[0]) is not _log_density(type(likelihood)):
        return SiteDescription(support=support)
    return found[0]._replace(support=support)


def _log_density(kind: type[gl.Likelihood]) -> object:
    return getattr(kind, "_scalar_log_prob", None)


# ---
# Checks of labels.


def check_labels(likelihood: gl.Likelihood, Y: np.ndarray) -> None:
    """Refuse labels outside of the support of a likelihood.

    :param Y: labels [N, P]; for a `SwitchedLikelihood` the last column selects the likelihood.
    :raises DataError: for any entry outside, with the first one and the count.

    Example::

        # this passes; with a 2 in the array it raises
        check_labels(gpflow.likelihoods.Bernoulli(), np.array([[0.0], [1.0]]))
    """
    if isinstance(likelihood, gl.SwitchedLikelihood):
        tasks = len(likelihood.likelihoods)
        if not np.all(classes(tasks).accepts(Y[:, -1])):
            raise DataError(
                "The last column of Y says which likelihood a row belongs to; it must consist of"
                f" whole numbers 0 to {tasks - 1}."
            )
        for task, part in enumerate(likelihood.likelihoods):
            check_labels(part, Y[Y[:, -1] == task, :-1])
        return
    if isinstance(likelihood, RowLikelihood):
        _check_rows(likelihood, Y)
        return
    support = site_description(likelihood).support
    if support is None:
        return
    outside = ~support.accepts(Y)
    if np.any(outside):
        row, column = np.argwhere(outside)[0]
        signs = support is BINARY and np.all(np.abs(Y) == 1)
        fix = "recode Y by (Y > 0).astype(float)" if signs else support.fix
        raise DataError(
            f"Y[{row}, {column}] = {Y[row, column]:g} is outside the support of"
            f" {type(likelihood).__name__}, which takes {support.words}; {fix}"
            f" ({int(outside.sum())} entries are outside)."
        )


def _check_rows(likelihood: RowLikelihood, Y: np.ndarray) -> None:
    y, numbers = likelihood.split(Y)
    empty = np.flatnonzero(np.isnan(y).all(axis=1))
    if len(empty):
        raise DataError(
            f"Y[{empty[0]}] is NaN in all columns, like {len(empty)} rows in all: they say nothing."
            " Drop them: keep = ~np.isnan(Y).all(axis=1); X, Y = X[keep], Y[keep]."
        )
    for name, values in numbers.items():
        least = {"weight": 0.0, "noise": 0.0, "trials": 1.0}.get(name, -np.inf)
        bad = ~(np.isfinite(values) & (values >= least))
        if np.any(bad):
            row = int(np.argwhere(bad)[0][0])
            raise DataError(
                f"{name} of row {row} is {values[row, 0]:g}; pass a finite number"
                + ("." if least == -np.inf else f" of at least {least:g}.")
            )
    base = likelihood.likelihood
    if isinstance(base, NumberedLikelihood):
        check_labels(base, np.hstack([_filled(y), numbers[base.number]]))
        return
    if "trials" in numbers:
        outside = ~np.isnan(y) & ~((y >= 0) & (y <= numbers["trials"]) & (y == np.round(y)))
        if np.any(outside):
            row, column = np.argwhere(outside)[0]
            raise DataError(
                f"Y[{row}, {column}] = {y[row, column]:g} is no number of successes in"
                f" {numbers['trials'][row, 0]:g} trials."
            )
        return
    check_labels(base, _filled(y))


def _filled(y: np.ndarray) -> np.ndarray:
    """Gaps take an entry of their row, which is checked in any case."""
    columns = np.argmax(~np.isnan(y), axis=1)
    return np.where(np.isnan(y), y[np.arange(len(y)), columns][:, None], y)


def index_columns(likelihood: gl.Likelihood) -> int:
    """Count the columns at the end of Y that are no outputs: one for a `SwitchedLikelihood` and a
    `NumberedLikelihood`, the numbers of rows for a `RowLikelihood`.
    """
    if isinstance(likelihood, RowLikelihood):
        return len(likelihood.numbers)
    return int(isinstance(likelihood, (gl.SwitchedLikelihood, NumberedLikelihood)))


def observation_columns(likelihood: gl.Likelihood, num_outputs: int) -> int | None:
    """Return the number of columns of Y for P = `num_outputs`, or None if undetermined.

    Example::

        likelihood = gpflow.likelihoods.Softmax(3)  # of three latents
        observation_columns(likelihood, num_outputs=3)  # 1, the class
    """
    if isinstance(likelihood, RowLikelihood):
        base = likelihood.likelihood
        own = observation_columns(base, num_outputs)
        return None if own is None else own - index_columns(base) + len(likelihood.numbers)
    if isinstance(likelihood, (gl.SwitchedLikelihood, NumberedLikelihood)):
        return num_outputs + index_columns(likelihood)
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    if isinstance(likelihood, gl.ScalarLikelihood):
        return num_outputs
    one = (CategoricalLogit, gl.MultiClass, gl.Softmax, gl.HeteroskedasticTFPConditional)
    return 1 if isinstance(likelihood, one) else None


# ---
# The sites of a likelihood.


def site_loss(likelihood: gl.Likelihood, Y: TensorType) -> SiteLoss:
    """Return the expected losses -E log p(y | f) of all labels under a Gaussian f.

    :param likelihood: with a declared loss: one latent function per observation, or a
        `CategoricalLogit`, whose loss is its bound.
    :param Y: labels [N, L].

    Example::

        loss = site_loss(gpflow.likelihoods.Poisson(), Y)
        loss.value(h, sigma)  # [N, L], nats, at means and standard deviations [N, L]
    """
    labels = site_labels(Y)
    if not isinstance(likelihood, CategoricalLogit):
        check_one_latent(likelihood)
    builder = site_description(likelihood).loss
    if builder is None:
        raise DataError(_not_declared(likelihood))
    if tf.executing_eagerly():
        values = np.asarray(labels)
        if not np.all(np.isfinite(values)):
            raise DataError(
                f"Y has {np.sum(~np.isfinite(values))} entries that are not finite numbers; remove"
                " these rows."
            )
        check_labels(likelihood, values)
    return builder(likelihood, labels)


def declare_site_loss(kind: type[gl.Likelihood], builder: SiteLossBuilder) -> None:
    """Declare the site losses of a class of likelihoods: `declare_site` with a loss alone.

    :param kind: a class of likelihoods with one latent function per observation.
    :param builder: (likelihood, Y [N, L]) -> its `SiteLoss`.

    Example, for a convex -log p(y | f) with derivatives between -1 and 1::

        declare_site_loss(
            Huber, lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0)
        )
    """
    declare_site(kind, loss=builder)


def likelihood_site(likelihood: gl.Likelihood, Y: TensorType) -> Site:
    """Return log p(y_n | f_n) as functions of f_n, for affine-independent inference.

    :param likelihood: with one latent function per observation. Logit, Laplace, Student-t and
        Gaussian have closed Fourier transforms, for the route "frequency_sum".
    :param Y: labels [N] or [N, 1]; [N, 2] for a `NumberedLikelihood`.

    Example::

        site = likelihood_site(BernoulliLogit(), Y[:, 0])
        # log p(y_n | f_n) [N, 1]
        site.smooth(f[:, None], *(part[:, None] for part in site.parameters))
    """
    check_one_latent(likelihood)
    labels = tf.convert_to_tensor(Y)
    if labels.shape.rank == 2 and not isinstance(likelihood, NumberedLikelihood):
        labels = labels[:, 0]
    return site_description(likelihood).density(likelihood, labels)


def is_logit(likelihood: gl.Likelihood) -> bool:
    """Return True for binary labels with the logistic link's log density."""
    return site_description(likelihood).density is LOGIT.density


def _not_declared(likelihood: gl.Likelihood) -> str:
    name, link = type(likelihood).__name__, getattr(likelihood, "invlink", None)
    known = (
        name if link is None else f"{name} with the inverse link {getattr(link, '__name__', link)}"
    )
    return (
        f"No site loss is declared for {known}: between what numbers the derivative of -log p(y |"
        f" f) in f lies is not known. Declare it: declare_site({name}, loss=lambda likelihood, Y:"
        " QuadratureLoss(likelihood, Y, lower, upper, curvature)), both from"
        " gpflow_decoupled.likelihoods."
    )


# ---


_WITHOUT_LOSS = (Gaussian, CategoricalLogit, Ordinal, HurdlePoisson)
"""Log-concave likelihoods whose sites have no loss, or none for some labels or noise."""
_AT_SOME_LABELS = (BetaBinomial, ZeroInflatedNegativeBinomial, ZeroInflatedPoisson)


def is_log_concave(likelihood: Likelihood) -> bool:
    """Return True if log p(y | f) is known to be concave in f, for every y.

    False without declared sites, see `declare_site`, and for GPflow's `Bernoulli()`.
    """
    if type(likelihood) in _WITHOUT_LOSS:
        return True
    loss = site_description(likelihood).loss
    if loss is None or type(likelihood) in _AT_SOME_LABELS:
        return False
    label = tf.ones([1, 1 + index_columns(likelihood)], default_float())  # valid for most of them
    label *= 0.5 if site_description(likelihood).support is UNIT_INTERVAL else 1.0
    return not np.any(np.asarray(loss(likelihood, label).curvature) > 0.0)
