"""Projections y, sites g and the limit of memory."""

# | symbol | code | shape |
# |---|---|---|
# | y_n = sum_d alpha_nd v_d + beta_n + noise, v_d independent, standardised | `Projections` | |
# | alpha, beta, tau^2 (variance of the noise) | `alpha`, `beta`, `noise` | [N, D], [N], [N] |
# | s_n, standard deviation of y_n: s_n^2 = sum_d alpha_nd^2 + tau_n^2 | `spread` | [N] |
# | theta, the P shapes of each v_d | `theta` | [D, P] |
# | g_n, the log density of observation n given y_n, and its parameters | `Site` | [N] each |

from __future__ import annotations

__all__ = ["Projections", "Reach", "Site", "check_projections", "rows_of", "tiny"]

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from ..errors import DataError

Rows = tuple[tf.Tensor, ...]
Reach: TypeAlias = float | tf.Tensor
"""R, half range of a grid in standard deviations of y: a number or a scalar tensor."""


class Projections(NamedTuple):
    """y_n = sum_d alpha_nd v_d + beta_n, plus independent normal noise if given."""

    alpha: tf.Tensor
    """[N, D]"""
    beta: tf.Tensor
    """Means of y, [N]."""
    theta: tf.Tensor
    """Shapes of the base distribution, [D, P]."""
    noise: tf.Tensor | None = None
    """Variances tau^2 [N] of normal base variables, or of a GP's residual."""
    frozen_spread: tf.Tensor | None = None
    """Deviations [N] that lay out grids, by default y's; fix them in a finite difference."""

    @property
    def spread(self) -> tf.Tensor:
        """Standard deviation of y, [N]."""
        variance = tf.reduce_sum(tf.square(self.alpha), axis=1)
        variance = variance if self.noise is None else variance + self.noise
        return tf.sqrt(tf.maximum(variance, tiny(self.alpha)))

    @property
    def scale(self) -> tf.Tensor:
        """`frozen_spread` or else `spread`, [N], without a gradient, for laying out grids."""
        return tf.stop_gradient(self.spread if self.frozen_spread is None else self.frozen_spread)

    @property
    def per_site(self) -> Rows:
        """Alpha [N, D], beta [N], noise [N] (zero if None) and `scale` [N]."""
        noise = tf.zeros_like(self.beta) if self.noise is None else self.noise
        return self.alpha, self.beta, noise, self.scale


class Site(NamedTuple):
    """The log density g_n(y) of each observation, as functions of y and of parameters [N].

    g(y) = smooth(y) + slope |y - place|, with place and slope from `kink`. The route
    "frequency_sum" uses `kernel`, `gauss`, `centre`, `width` and `cutoff`. Parameters follow y as
    [n, 1].

    Example, logistic noise about observations Y [N, 1]::

        site = Site(
            lambda y, target: y - target - 2.0 * tf.math.softplus(y - target), (Y[:, 0],)
        )
    """

    smooth: Callable[..., tf.Tensor]
    """(y [n, K], *parameters [n, 1]) -> [n, K]"""
    parameters: Rows = ()
    """[N] each; gradients reach these, but not variables that the functions close over."""
    kink: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None
    """(*parameters [n, 1]) -> place, slope [n, 1]"""
    kernel: Callable[..., tf.Tensor] | None = None
    """(omega [n, T], *parameters [n, 1]) -> k(omega) e^{i omega centre}, real and even [n, T],
    where k is the Fourier transform of g''.
    """
    gauss: Callable[..., tf.Tensor] | None = None
    """(m, variance, *parameters), [n] each -> E g under N(m, variance), [n]"""
    centre: Callable[..., tf.Tensor] | None = None
    """(*parameters [n]) -> the centre of symmetry of g'' [n]; zero by default."""
    width: Callable[..., tf.Tensor] | None = None
    """(*parameters [n]) -> how far g'' reaches from its centre [n]; zero by default."""
    cutoff: Callable[..., tf.Tensor] | None = None
    """(spread, *parameters), [n] each -> the last frequency [n] for a k with a kink at zero, by
    Gauss-Legendre nodes instead of the trapezoid rule.
    """


def tiny(like: tf.Tensor) -> float:
    """A variance in place of zero, in the precision of `like` [...]."""
    return 1e-200 if like.dtype == tf.float64 else 1e-30


def check_projections(y: Projections, site: Site | None = None) -> None:
    """Raise `DataError` where static shapes disagree."""
    alpha, beta = y.alpha.shape, y.beta.shape
    if alpha.rank != 2 or beta.rank != 1:
        raise DataError(f"alpha has shape {alpha} and beta {beta}; they must be [N, D] and [N].")
    rows = {"beta": y.beta, "noise": y.noise, "frozen_spread": y.frozen_spread}
    rows |= {
        f"parameter {i} of the site": part for i, part in enumerate(site.parameters if site else ())
    }
    for name, part in rows.items():
        if part is not None and not part.shape.is_compatible_with(alpha[:1]):
            raise DataError(
                f"{name} has shape {part.shape} and alpha {alpha}: it must have {alpha[0]} entries,"
                " one per site."
            )
    if y.theta.shape.rank != 2 or not y.theta.shape[:1].is_compatible_with(alpha[1:]):
        raise DataError(
            f"theta has shape {y.theta.shape} and alpha {alpha}: theta must be [{alpha[1]}, P], one"
            " row per variable."
        )


def rows_of(limit: float, D: int, length: int, work: int, dtype: tf.DType) -> int:
    """Return the sites n per block: `work` complex tensors [n, D, length] in `limit` bytes."""
    one = 2 * dtype.size * D * length * work
    if one > limit:
        raise DataError(
            f"One site with D = {D} dimensions and {length} points takes {one / 2**20:.3g} MiB,"
            f" more than the memory limit of {limit / 2**20:.3g} MiB: raise memory, take fewer"
            " points, or fewer dimensions that are not normal (non_normal)."
        )
    return int(limit // one)
