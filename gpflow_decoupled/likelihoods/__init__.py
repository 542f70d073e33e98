"""What one observation contributes: the support of its labels, and its expected loss with derivatives."""

from .gaussian_loss import GaussianLoss
from .log_linear_loss import LogLinearLoss
from .logit_loss import LogitLoss
from .site_loss import Expansion, Maximiser, SiteLoss
from .site_losses import declare_site_loss, site_loss
from .support import check_labels, observation_columns

__all__ = [
    "Expansion", "GaussianLoss", "LogLinearLoss", "LogitLoss", "Maximiser", "SiteLoss", "check_labels", "declare_site_loss",
    "observation_columns", "site_loss",
]  # fmt: skip
