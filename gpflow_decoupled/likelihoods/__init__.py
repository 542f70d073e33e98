"""What one observation contributes: likelihoods, the support of labels, and expected losses with derivatives."""

from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .gaussian_loss import GaussianLoss
from .laplace import Laplace, LaplaceLoss
from .log_linear_loss import LogLinearLoss
from .logit_loss import LogitLoss, PiecewiseLogitLoss
from .negative_binomial import NegativeBinomial
from .quadrature_loss import QuadratureLoss
from .site_loss import Expansion, Maximiser, SiteLoss
from .site_losses import declare_site_loss, site_loss
from .support import check_labels, observation_columns

__all__ = [
    "BernoulliLogit", "BernoulliProbit", "Expansion", "GaussianLoss", "Laplace", "LaplaceLoss", "LogLinearLoss", "LogitLoss",
    "Maximiser", "NegativeBinomial", "PiecewiseLogitLoss", "QuadratureLoss", "SiteLoss", "check_labels", "declare_site_loss",
    "observation_columns", "site_loss",
]  # fmt: skip
