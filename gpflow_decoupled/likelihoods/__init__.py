"""What one observation contributes: likelihoods, the support of labels, and expected losses with derivatives."""

from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .laplace import Laplace, LaplaceLoss
from .negative_binomial import NegativeBinomial
from .sites.gaussian_loss import GaussianLoss
from .sites.log_linear_loss import LogLinearLoss
from .sites.logit_loss import LogitLoss, PiecewiseLogitLoss
from .sites.quadrature_loss import QuadratureLoss
from .sites.registry import declare_site_loss, site_loss
from .sites.site_loss import Expansion, Maximiser, SiteLoss
from .support import check_labels, observation_columns

__all__ = [
    "BernoulliLogit", "BernoulliProbit", "Expansion", "GaussianLoss", "Laplace", "LaplaceLoss", "LogLinearLoss", "LogitLoss",
    "Maximiser", "NegativeBinomial", "PiecewiseLogitLoss", "QuadratureLoss", "SiteLoss", "check_labels", "declare_site_loss",
    "observation_columns", "site_loss",
]  # fmt: skip
