"""Likelihoods that GPflow lacks, and sites of all likelihoods.

Read `laplace`, then `sites`. Each class has its file (`asymmetric_laplace`, `bernoulli_logit`,
`bernoulli_probit`, `hinge`, `laplace`, `ordinal`, `categorical_logit`, `tweedie`); `counts` and
`survival` are folders, `numbered` is for observations with a number beside them, and
`row_likelihood` has numbers of rows. `sites` has the sites of all, GPflow's included; `lookup`
finds them, `declare_site` adds one. `support` and `labels` check labels, `parameters` Parameters;
`nodes` changes quadratures, `predictions` and `log_densities` predict; see also `log_concave`.
"""

from ..expectations.projections import Site
from .asymmetric_laplace import AsymmetricLaplace
from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .categorical_logit import CategoricalLogit
from .counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .hinge import Hinge
from .labels import check_labels, observation_columns
from .laplace import Laplace
from .lookup import declare_site_loss, likelihood_site, site_loss
from .numbered import NumberedLikelihood
from .ordinal import Ordinal
from .predictions import observation_moments, observation_quantiles
from .row_likelihood import RowLikelihood
from .sites.counts.binomial_site import BinomialLoss
from .sites.counts.log_linear_site import LogLinearLoss
from .sites.expected_loss import ExpectedLoss
from .sites.gaussian_site import GaussianLoss
from .sites.laplace_site import HingeLoss, LaplaceLoss
from .sites.logit_site import ConvexPiecewiseLogitLoss, LogitLoss, PiecewiseLogitLoss
from .sites.prior_sites import prior_site
from .sites.quadrature_loss import QuadratureLoss
from .sites.quantile_site import QuantileLoss
from .sites.registry import declare_site
from .sites.site_loss import Expansion, Maximiser, SiteLoss
from .support import Support
from .survival import CensoredLikelihood, CensoredNormal, LogNormal, Weibull
from .tweedie import Tweedie

__all__ = [
    "AsymmetricLaplace", "BernoulliLogit", "BernoulliProbit", "BetaBinomial", "Binomial",
    "BinomialLoss", "CategoricalLogit", "CensoredLikelihood", "CensoredNormal",
    "ConvexPiecewiseLogitLoss", "Expansion", "ExpectedLoss", "GaussianLoss", "Hinge", "HingeLoss",
    "HurdleNegativeBinomial", "HurdlePoisson", "Laplace", "LaplaceLoss", "LogLinearLoss",
    "LogNormal", "LogitLoss", "Maximiser", "NegativeBinomial", "NumberedLikelihood", "Ordinal",
    "PiecewiseLogitLoss", "QuadratureLoss", "QuantileLoss", "RowLikelihood", "Site", "SiteLoss",
    "Support", "Tweedie", "Weibull", "ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson",
    "check_labels", "declare_site", "declare_site_loss", "likelihood_site", "observation_columns",
    "observation_moments", "observation_quantiles", "prior_site", "site_loss",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
