"""Which site loss belongs to a likelihood, and how a likelihood of one's own is given one."""

from __future__ import annotations

__all__ = ["SiteLossBuilder", "declare_site_loss", "site_loss"]

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit

from ...errors import DataError
from ..bernoulli_logit import BernoulliLogit
from ..bernoulli_probit import BernoulliProbit
from ..laplace import Laplace, LaplaceLoss
from ..negative_binomial import NegativeBinomial
from ..support import check_labels
from .gaussian_loss import GaussianLoss
from .log_linear_loss import gamma_loss, poisson_loss
from .logit_loss import LogitLoss, PiecewiseLogitLoss
from .scalar_losses import jittered_probit_loss, negative_binomial_loss, probit_loss, student_t_loss
from .site_loss import SiteLoss, site_labels

SiteLossBuilder = Callable[[Any, TensorType], SiteLoss | None]
"""Of a likelihood and Y [N, L]; None where the loss of this very likelihood is not known."""


def _bernoulli(likelihood: gl.Bernoulli, Y: TensorType) -> SiteLoss | None:
    if likelihood.invlink is inv_probit:
        return jittered_probit_loss(likelihood, Y)
    return LogitLoss(likelihood, Y) if likelihood.invlink is tf.sigmoid else None


def _bernoulli_logit(likelihood: BernoulliLogit, Y: TensorType) -> SiteLoss:
    return (LogitLoss if likelihood.expectation == "exact" else PiecewiseLogitLoss)(likelihood, Y)


def _with_exp(builder: SiteLossBuilder) -> SiteLossBuilder:
    """For likelihoods that take any inverse link: only the exponential is known."""
    return lambda likelihood, Y: builder(likelihood, Y) if likelihood.invlink is tf.exp else None


_BUILDERS: dict[type[gl.Likelihood], SiteLossBuilder] = {
    gl.Gaussian: GaussianLoss,
    gl.Poisson: _with_exp(poisson_loss),
    gl.Exponential: _with_exp(gamma_loss),
    gl.Gamma: _with_exp(gamma_loss),
    gl.Bernoulli: _bernoulli,
    gl.StudentT: student_t_loss,
    BernoulliLogit: _bernoulli_logit,
    BernoulliProbit: probit_loss,
    Laplace: LaplaceLoss,
    NegativeBinomial: negative_binomial_loss,
}


def declare_site_loss(kind: type[gl.Likelihood], builder: SiteLossBuilder) -> None:
    """Say how site losses of a class of likelihoods are built, and of those that inherit its density.

    :param kind: the class. :param builder: of a likelihood and Y [N, L], returns a `SiteLoss`.

    Mostly a `QuadratureLoss` will do, which needs to know between what numbers the derivative of -log p(y | eta) in eta lies,
    and how negative its second derivative can be. A loss is built once and kept while the likelihood's Parameters are
    learned: what depends on these must be a function, as the ends of a `QuadratureLoss` can be. Example, for a likelihood with
    a derivative between -1 and 1, log-concave::

        declare_site_loss(Huber, lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0))
    """
    if not (isinstance(kind, type) and issubclass(kind, gl.Likelihood)):
        raise DataError(f"{kind!r} is no class of likelihoods: declare_site_loss takes the class, not a likelihood.")
    _BUILDERS[kind] = builder


def site_loss(likelihood: gl.Likelihood, Y: TensorType) -> SiteLoss:
    """The site loss of a likelihood at labels Y [N, L].

    Raises `DataError`, a `ValueError`, for labels that are not finite or outside of the support, parameters that are functions
    of the inputs or not positive, and likelihoods without a declared loss.
    """
    labels, builder = site_labels(Y), _builder(likelihood)
    if builder is not None and tf.executing_eagerly():
        values = np.asarray(labels)
        if not np.all(np.isfinite(values)):
            raise DataError(
                f"Y has {np.sum(~np.isfinite(values))} entries that are not finite numbers; remove these rows."
            )
        check_labels(likelihood, values)
    loss = None if builder is None else builder(likelihood, labels)
    if loss is None:
        raise DataError(_not_declared(likelihood))
    return loss


def _builder(likelihood: gl.Likelihood) -> SiteLossBuilder | None:
    """That of the class, or of the nearest one from which it inherits its density."""
    for kind in type(likelihood).__mro__:
        if kind in _BUILDERS:
            same = getattr(type(likelihood), "_scalar_log_prob", None) is getattr(kind, "_scalar_log_prob", None)
            return _BUILDERS[kind] if same else None
    return None


def _not_declared(likelihood: gl.Likelihood) -> str:
    name, link = type(likelihood).__name__, getattr(likelihood, "invlink", None)
    if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(likelihood, gl.SwitchedLikelihood):
        return (
            f"{name} has no site loss: one latent function an observation, and one density for all of them, are needed."
        )
    known = name if link is None else f"{name} with the inverse link {getattr(link, '__name__', link)}"
    return (
        f"No site loss is declared for {known}: between what numbers the derivative of -log p(y | f) in f lies is not "
        f"known. Declare it: declare_site_loss({name}, lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower, upper, "
        "curvature)), both from gpflow_decoupled.likelihoods."
    )
