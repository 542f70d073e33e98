"""Site descriptions by class of likelihoods."""

from __future__ import annotations

__all__ = ["declare_site", "site_description"]

from collections.abc import Callable
from typing import Any

from gpflow import likelihoods as gl

from ...errors import DataError
from ...summaries import short_repr
from ..asymmetric_laplace import AsymmetricLaplace
from ..bernoulli_logit import BernoulliLogit
from ..bernoulli_probit import BernoulliProbit
from ..categorical_logit import CategoricalLogit
from ..counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from ..counts.negative_binomial import NegativeBinomial
from ..hinge import Hinge
from ..laplace import Laplace
from ..ordinal import Ordinal
from ..support import Support, classes
from ..survival import CensoredNormal, LogNormal, Weibull
from ..tweedie import Tweedie
from .beta_site import beta_sites
from .categorical_site import categorical_sites
from .censored_site import CENSORED_NORMAL, LOG_NORMAL, WEIBULL
from .counts.binomial_site import BETA_BINOMIAL, BINOMIAL
from .counts.log_linear_site import TWEEDIE, exponential_sites, gamma_sites, poisson_sites
from .counts.negative_binomial_site import HURDLE, NEGATIVE_BINOMIAL, ZERO_INFLATED
from .description import DensityBuilder, SiteDescription, SiteLossBuilder
from .gaussian_site import GAUSSIAN
from .laplace_site import HINGE, LAPLACE
from .logit_site import logit_sites
from .ordinal_site import ordinal_sites
from .probit_site import PROBIT, bernoulli_sites
from .quantile_site import QUANTILE
from .student_t_site import STUDENT_T

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
