"""Likelihoods that GPflow lacks, and the sites of all likelihoods.

Read `laplace`, then `sites`. Each class has its file (`bernoulli_logit`, `bernoulli_probit`,
`hinge`, `laplace`, `negative_binomial`, `ordinal`, `categorical_logit`); `row_likelihood` has
numbers of rows. `sites` describes the site of every likelihood, GPflow's included; `lookup` finds
them, `declare_site` adds one. `support` and `labels` check labels, `parameters` Parameters; `nodes`
changes quadratures, `moments` has predictive moments, `log_concave` tells which are log-concave.
"""

from ..expectations.projections import Site
from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .categorical_logit import CategoricalLogit
from .hinge import Hinge
from .labels import check_labels, observation_columns
from .laplace import Laplace
from .lookup import declare_site_loss, likelihood_site, site_loss
from .moments import observation_moments
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .row_likelihood import RowLikelihood
from .sites.gaussian_site import GaussianLoss
from .sites.laplace_site import HingeLoss, LaplaceLoss
from .sites.log_linear_site import LogLinearLoss
from .sites.logit_site import ConvexPiecewiseLogitLoss, LogitLoss, PiecewiseLogitLoss
from .sites.prior_sites import prior_site
from .sites.quadrature_loss import QuadratureLoss
from .sites.registry import declare_site
from .sites.site_loss import Expansion, Maximiser, SiteLoss
from .support import Support

__all__ = [
    "BernoulliLogit", "BernoulliProbit", "CategoricalLogit", "ConvexPiecewiseLogitLoss",
    "Expansion", "GaussianLoss", "Hinge", "HingeLoss", "Laplace", "LaplaceLoss", "LogLinearLoss",
    "LogitLoss", "Maximiser", "NegativeBinomial", "Ordinal", "PiecewiseLogitLoss", "QuadratureLoss",
    "RowLikelihood", "Site", "SiteLoss", "Support", "check_labels", "declare_site",
    "declare_site_loss", "likelihood_site", "observation_columns", "observation_moments",
    "prior_site", "site_loss",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
