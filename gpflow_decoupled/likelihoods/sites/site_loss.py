"""The expected loss of one observation."""

# | symbol | code | shape |
# |---|---|---|
# | f(h, sigma) = -E log p(y given eta), eta ~ N(h, sigma^2) | `SiteLoss.value` | [N, L] |
# | its first and second derivatives | `SiteLoss.expand` | [N, L] each |
# | S, the interval of the derivatives f_h | `SiteLoss.lower`, `SiteLoss.upper` | [N, L] each |
# | c, the least number with (-log p)'' >= -c | `SiteLoss.curvature` | [N, L] |
# | the maximum of (V15) and its place | `SiteLoss.maximiser` | [N, L] each |
#
# The Lagrangian dual maximises (V15), `dual_objective`, over (h, sigma) per site:
#
#   -f(h, sigma) + alpha h + lambda sigma_k (sigma - sigma_k / 2) - rho / 2 (sigma - sigma_k)^2
#
# with multipliers alpha, lambda, the deviation sigma_k where the dual was linearised, and a penalty
# rho. f is even in sigma, and jointly convex in (h, sigma) for log-concave likelihoods (Khan 2014,
# section 4).

from __future__ import annotations

__all__ = [
    "Expansion",
    "Maximiser",
    "Reference",
    "SiteLoss",
    "dual_objective",
    "log_normaliser",
    "site_labels",
]

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ...errors import DataError


def site_labels(Y: TensorType) -> tf.Tensor:
    """Y [N, L] in the default precision."""
    labels = tf.cast(tf.convert_to_tensor(Y), default_float())
    if labels.shape.rank != 2:
        raise DataError(
            f"Y has shape {labels.shape}; it must be [N, L], with one column per latent function:"
            " use Y[:, None]."
        )
    return labels


class Expansion(NamedTuple):
    """A site loss and its derivatives at one (h, sigma) per observation.

    Derivatives are of the value as computed, so that line searches and Newton steps agree.

    Example::

        at = site_loss(likelihood, Y).expand(h, sigma)
        newton_step = -at.d_h / at.d_hh
    """

    value: tf.Tensor
    """f [N, L], nats."""
    d_h: tf.Tensor
    """[N, L]; even in sigma, like `value`, `d_hh` and `d_ss`."""
    d_s: tf.Tensor
    """[N, L]; odd in sigma, like `d_hs`."""
    d_hh: tf.Tensor
    """[N, L]"""
    d_hs: tf.Tensor
    """[N, L]"""
    d_ss: tf.Tensor
    """[N, L]"""


class Maximiser(NamedTuple):
    """The maximum of `dual_objective`, its place, and the place's slopes in the multipliers.

    Example::

        best = site_loss(gpflow.likelihoods.Gaussian(), Y).maximiser(alpha, lam, sigma_k, rho)
        dual_value = tf.reduce_sum(best.value)
    """

    h: tf.Tensor
    """h* [N, L]"""
    sigma: tf.Tensor
    """sigma* [N, L]"""
    value: tf.Tensor
    """f^k* [N, L], nats."""
    d_h_d_alpha: tf.Tensor
    """[N, L]"""
    d_h_d_lam: tf.Tensor
    """[N, L]; sigma_k times the derivative of sigma* in alpha."""
    d_s_d_lam: tf.Tensor
    """[N, L]"""


class Reference(NamedTuple):
    """Gaussians N(centre, 1 / precision) whose expected losses are subtracted, (V30)."""

    loss: SiteLoss
    """The loss without them."""
    precision: tf.Tensor
    """[N, L]; zero where nothing is subtracted."""
    centre: tf.Tensor
    """[N, L]"""

    def expected_loss(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """-E log N(x; centre, 1 / precision), x ~ N(h, sigma^2), nats [N, L]; 0 at precision 0."""
        squares = tf.square(h - self.centre) + tf.square(sigma)
        return 0.5 * self.precision * squares - log_normaliser(self.precision)


def log_normaliser(precision: tf.Tensor) -> tf.Tensor:
    """1/2 log(c / (2 pi)) of normal densities with precision c [...]; zero at c = 0."""
    known = precision > 0.0
    return tf.where(
        known, 0.5 * tf.math.log(tf.where(known, precision, 1.0) / (2.0 * math.pi)), 0.0
    )


class SiteLoss(ABC):
    """Expected losses f(h, sigma) = -E log p(y | eta), eta ~ N(h, sigma^2), of labels Y [N, L].

    Differentiable in h, sigma and the likelihood's Parameters.

    :param Y: labels [N, L].

    A subclass has `lower`, `upper`, `value` and `expand`; a `QuadratureLoss` needs less. Example::

        loss = site_loss(gpflow.likelihoods.Poisson(), Y)
        at = loss.expand(h, sigma)
        at.value, at.d_h, at.d_s  # [N, L] each
    """

    needs_penalty: bool = False
    """The dual objective has no maximum with rho = 0."""
    no_dual: str | None = None
    """Why the dual objective cannot be maximised, and the alternative; None if it can."""
    couples: bool = False
    """The loss of an observation is one function of all its latents, and the entries of `value` are
    shares of it; the dual does not fall apart into sites.
    """
    parts: tuple[SiteLoss, ...] = ()
    """The losses stacked in this one, if any."""
    reference: Reference | None = None
    """The Gaussians that the loss subtracts, as for a weight's prior, if any."""

    def __init__(self, Y: TensorType) -> None:
        self.Y = site_labels(Y)

    @property
    @abstractmethod
    def lower(self) -> tf.Tensor:
        """Lower end of S [N, L], or -inf."""

    @property
    @abstractmethod
    def upper(self) -> tf.Tensor:
        """Upper end of S [N, L], or inf."""

    @property
    def curvature(self) -> tf.Tensor:
        """The least c [N, L] >= 0 with (-log p)'' >= -c; zero if log-concave."""
        return tf.zeros_like(self.Y)  # (V20)

    @property
    def log_concave(self) -> bool:
        """True if `curvature` is zero for all Parameters."""
        return type(self).curvature is SiteLoss.curvature

    @property
    def penalised(self) -> tf.Tensor:
        """True where the dual objective has no maximum with rho = 0, [N, L]."""
        # also where S is one point: the row says nothing of eta
        return tf.convert_to_tensor(self.needs_penalty) | (self.lower == self.upper)

    @abstractmethod
    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L] in nats at means h and standard deviations sigma [N, L], of any
        sign.
        """

    @abstractmethod
    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives in h and sigma, [N, L] each; arguments as `value`."""

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """A start of Newton's method: h [N, L] with f_h about alpha [N, L] for small sigma."""
        return tf.zeros_like(alpha)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser | None:
        """Return the maximum of `dual_objective` in closed form, or None if there is none.

        :param alpha: multipliers of the means [N, L], inside S; `lam` of the variances [N, L].
        :param sigma_k: standard deviations where the dual was linearised [N, L].
        :param rho: weights of the penalty [N, L], at least 0; above 0 if `needs_penalty`.
        """
        return None

    def _constant(self, number: float) -> tf.Tensor:
        return tf.fill(tf.shape(self.Y), np.array(number, self.Y.dtype.as_numpy_dtype))


def dual_objective(
    value: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    sigma_k: tf.Tensor,
    rho: tf.Tensor,
    kappa: tf.Tensor | None = None,
    h_k: tf.Tensor | None = None,
) -> tf.Tensor:
    """(V15) with a proximal term in h, at one (h, sigma) per observation; all [N, L].

    `kappa` weighs -1/2 (h - h_k)^2; for other symbols see the module.
    """
    linear = alpha * h + lam * sigma_k * (sigma - 0.5 * sigma_k)
    objective = linear - value - 0.5 * rho * tf.square(sigma - sigma_k)
    if kappa is not None:
        objective -= 0.5 * kappa * tf.square(h - h_k)
    return objective  # (V15)
