"""Likelihoods that GPflow lacks, and sites of all likelihoods.

Read `laplace`, then `site_loss`, the contract of sites, and `registry`, which knows the sites and
labels of every likelihood; `declare_site` adds one. `bernoulli`, `categorical`, `counts`,
`ordinal`, `survival` and `tweedie` have likelihoods, some with their sites; `count_sites`,
`gpflow_sites` and `prior_sites` have sites alone. `row_likelihood` has numbers of rows;
`predictions` has moments, distribution functions and quantiles; `facts` answers all that other
folders ask of a likelihood, which never look at its class.
"""

from ..expectations.projections import Site
from .bernoulli import BernoulliLogit, BernoulliProbit
from .categorical import CategoricalLogit
from .counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .laplace import AsymmetricLaplace, Hinge, Laplace
from .ordinal import Ordinal
from .parameters import NumberedLikelihood, Support
from .predictions import observation_moments, observation_quantiles
from .prior_sites import prior_site
from .registry import (
    check_labels,
    declare_site,
    declare_site_loss,
    likelihood_site,
    observation_columns,
    site_loss,
)
from .row_likelihood import RowLikelihood
from .site_loss import Expansion, ExpectedLoss, Maximiser, QuadratureLoss, SiteLoss
from .survival import CensoredLikelihood, CensoredNormal, LogNormal, Weibull
from .tweedie import Tweedie

__all__ = [
    "AsymmetricLaplace", "BernoulliLogit", "BernoulliProbit", "BetaBinomial", "Binomial",
    "CategoricalLogit", "CensoredLikelihood", "CensoredNormal", "Expansion", "ExpectedLoss",
    "Hinge", "HurdleNegativeBinomial", "HurdlePoisson", "Laplace", "LogNormal", "Maximiser",
    "NegativeBinomial", "NumberedLikelihood", "Ordinal", "QuadratureLoss", "RowLikelihood",
    "Site", "SiteLoss", "Support", "Tweedie", "Weibull", "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson", "check_labels", "declare_site", "declare_site_loss", "likelihood_site",
    "observation_columns", "observation_moments", "observation_quantiles", "prior_site",
    "site_loss",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
