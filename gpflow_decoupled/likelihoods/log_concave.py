"""Which likelihoods are log-concave in f."""

from __future__ import annotations

__all__ = ["is_log_concave"]

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.likelihoods import Gaussian, Likelihood

from .categorical_logit import CategoricalLogit
from .counts import (
    BetaBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .labels import index_columns
from .ordinal import Ordinal
from .sites.registry import site_description
from .support import UNIT_INTERVAL

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
