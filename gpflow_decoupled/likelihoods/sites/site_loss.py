"""What one observation contributes to the bound, as a function of the mean and standard deviation of its latent.

| symbol | code | shape |
|---|---|---|
| f(h, sigma) = -E log p(y given eta), eta ~ N(h, sigma^2) | `SiteLoss.value` | [N, L] |
| its first and second derivatives | `SiteLoss.expand` | [N, L] each |
| S, where alpha = f_h can lie | `SiteLoss.lower`, `SiteLoss.upper` | [N, L] each |
| c, with -log p'' >= -c | `SiteLoss.curvature` | [N, L] |
| maximum of (V15) and where it is | `SiteLoss.maximiser` | [N, L] each |

Source: Khan 2014, section 4, with the standard deviation as the second argument: f is even in sigma, and jointly convex
in (h, sigma) where the likelihood is log-concave.
"""

from __future__ import annotations

__all__ = ["Expansion", "Maximiser", "SiteLoss", "dual_objective", "site_labels"]

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ...errors import DataError


def site_labels(Y: TensorType) -> tf.Tensor:
    """Y [N, L] in the default precision. Raises `DataError` where Y has not two dimensions."""
    labels = tf.cast(tf.convert_to_tensor(Y), default_float())
    if labels.shape.rank != 2:
        raise DataError(f"Y has shape {labels.shape}; it must be [N, L], with one column a latent: use Y[:, None].")
    return labels


class Expansion(NamedTuple):
    """The loss and its derivatives at one (h, sigma) an observation, all [N, L]: those of the value as computed, (V2)."""

    value: tf.Tensor
    """[N, L], nats"""
    d_h: tf.Tensor
    """[N, L], even in sigma as `value`, `d_hh` and `d_ss` are"""
    d_s: tf.Tensor
    """[N, L], odd in sigma as `d_hs` is"""
    d_hh: tf.Tensor
    """[N, L]"""
    d_hs: tf.Tensor
    """[N, L]"""
    d_ss: tf.Tensor
    """[N, L]"""


class Maximiser(NamedTuple):
    """Where (V15) is largest, what it is there, and how that moves: (V17)."""

    h: tf.Tensor
    """h* [N, L]"""
    sigma: tf.Tensor
    """sigma* [N, L]"""
    value: tf.Tensor
    """f^k* [N, L], nats"""
    d_h_d_alpha: tf.Tensor
    """[N, L]"""
    d_h_d_lam: tf.Tensor
    """[N, L]; sigma_k times the derivative of sigma* in alpha is the same"""
    d_s_d_lam: tf.Tensor
    """[N, L]"""


class SiteLoss(ABC):
    """f(h, sigma) = -E log p(y | eta), eta ~ N(h, sigma^2), of all observations Y [N, L] at once, a column a latent.

    Values are differentiable in h, sigma and in the Parameters of the likelihood, which every call reads anew. Raises
    `DataError` for Y that is not [N, L].
    """

    needs_penalty: bool = False
    """Whether (V15) has no maximum with rho = 0."""
    no_dual: str | None = None
    """Why (V15) cannot be maximised for this loss, and what to use instead; None where it can."""

    def __init__(self, Y: TensorType) -> None:
        self.Y = site_labels(Y)

    @property
    @abstractmethod
    def lower(self) -> tf.Tensor:
        """The lower end of S [N, L], or -inf."""

    @property
    @abstractmethod
    def upper(self) -> tf.Tensor:
        """The upper end of S [N, L], or inf."""

    @property
    def curvature(self) -> tf.Tensor:
        """The least c [N, L] >= 0 with -log p'' >= -c: zero where the likelihood is log-concave, (V20)."""
        return tf.zeros_like(self.Y)

    @abstractmethod
    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L] in nats at h and sigma [N, L]; sigma may have any sign."""

    @abstractmethod
    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each, at h and sigma [N, L]; sigma may have any sign."""

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """Some h [N, L] at which f_h is about alpha [N, L], for a small sigma: where Newton's method may start."""
        return tf.zeros_like(alpha)

    def maximiser(self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor) -> Maximiser | None:
        """The maximum of (V15) with kappa = 0 in closed form, or None where there is none; arguments [N, L]."""
        return None

    def _constant(self, number: float) -> tf.Tensor:
        """The same number for each observation [N, L]."""
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
    """What (V15) maximises [N, L] for the loss f = value; all arguments are [N, L], and kappa = None stands for zero."""
    linear = alpha * h + lam * sigma_k * (sigma - 0.5 * sigma_k)
    objective = linear - value - 0.5 * rho * tf.square(sigma - sigma_k)
    if kappa is not None:
        objective -= 0.5 * kappa * tf.square(h - h_k)
    return objective  # (V15)
