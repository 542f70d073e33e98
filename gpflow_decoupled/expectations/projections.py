"""What the three routes to an expectation E g(y) share: the projections y, the sites g, and how much memory they may take.

| symbol | code | shape |
|---|---|---|
| y_n = sum_d alpha_nd v_d + beta_n + noise, v standardised | `Projections` | |
| alpha, beta, tau^2 (variance of the noise, or None) | `alpha`, `beta`, `noise` | [N, D], [N], [N] |
| s_n^2 = sum_d alpha_nd^2 + tau_n^2, standard deviation of y_n squared | `spread` | [N] |
| theta | `theta` | [D, P] |
| g_n, and its parameters | `Site` | [N] each |
"""

from __future__ import annotations

__all__ = ["Projections", "Site", "check_projections", "rows_of", "tiny"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..errors import DataError

Rows = tuple[tf.Tensor, ...]


class Projections(NamedTuple):
    """y_n = sum_d alpha_nd v_d + beta_n, and independent normal noise of variance `noise` where it is given."""

    alpha: tf.Tensor
    """[N, D]"""
    beta: tf.Tensor
    """[N], the means of y"""
    theta: tf.Tensor
    """[D, P], shapes of the base"""
    noise: tf.Tensor | None = None
    """tau^2 [N], not negative: normal base variables, or what a projection leaves of a Gaussian process"""
    frozen_spread: tf.Tensor | None = None
    """[N]: lattices and frequencies are laid out for these standard deviations; by default for those of y as they are.
    Hold them while a line search or a finite difference compares values."""

    @property
    def spread(self) -> tf.Tensor:
        """The standard deviation of y [N]."""
        variance = tf.reduce_sum(tf.square(self.alpha), axis=1)
        variance = variance if self.noise is None else variance + self.noise
        return tf.sqrt(tf.maximum(variance, tiny(self.alpha)))

    @property
    def scale(self) -> tf.Tensor:
        """`frozen_spread`, or a `spread` that is not differentiated, [N]."""
        return tf.stop_gradient(self.spread if self.frozen_spread is None else self.frozen_spread)

    @property
    def per_site(self) -> Rows:
        """What has a row a site: [N, D], [N], [N], [N]."""
        noise = tf.zeros_like(self.beta) if self.noise is None else self.noise
        return self.alpha, self.beta, noise, self.scale


class Site(NamedTuple):
    """log g of one observation a row, from parameters [N] each: functions that take them after y, as [n, 1].

    g(y) = smooth(y) + slope |y - place|, where `kink` gives (place, slope). The others serve the frequency sum alone.
    """

    smooth: Callable[..., tf.Tensor]
    """(y [n, K], *parameters [n, 1]) -> [n, K]"""
    parameters: Rows = ()
    """[N] each; gradients reach these and nothing that the functions close over"""
    kink: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None
    """(*parameters [n, 1]) -> place, slope [n, 1]"""
    kernel: Callable[..., tf.Tensor] | None = None
    """(omega [n, T], *parameters [n, 1]) -> k(omega) e^{i omega centre}, real and even, [n, T]; (A11)"""
    gauss: Callable[..., tf.Tensor] | None = None
    """(m, variance, *parameters), [n] each -> E g under N(m, variance), [n]"""
    centre: Callable[..., tf.Tensor] | None = None
    """(*parameters [n]) -> what g'' is symmetric about, [n]; by default zero"""
    width: Callable[..., tf.Tensor] | None = None
    """(*parameters [n]) -> w of (A13) [n]; by default zero"""
    cutoff: Callable[..., tf.Tensor] | None = None
    """(spread, *parameters), [n] each -> the last frequency [n], where k has a kink at zero: Gauss-Legendre nodes up to it
    instead of a trapezoid rule"""


def tiny(like: tf.Tensor) -> float:
    """A variance that stands for none, in the precision of `like` [...]."""
    return 1e-200 if like.dtype == tf.float64 else 1e-30


def check_projections(y: Projections, site: Site | None = None) -> None:
    """Raise `DataError` where shapes, as far as they are known, do not agree."""
    alpha, beta = y.alpha.shape, y.beta.shape
    if alpha.rank != 2 or beta.rank != 1:
        raise DataError(f"alpha has shape {alpha} and beta {beta}; they must be [N, D] and [N].")
    rows = {"beta": y.beta, "noise": y.noise, "frozen_spread": y.frozen_spread}
    rows |= {f"parameter {i} of the site": part for i, part in enumerate(site.parameters if site else ())}
    for name, part in rows.items():
        if part is not None and not part.shape.is_compatible_with(alpha[:1]):
            raise DataError(
                f"{name} has shape {part.shape} and alpha {alpha}: it must have {alpha[0]} entries, one a site."
            )
    if y.theta.shape.rank != 2 or not y.theta.shape[:1].is_compatible_with(alpha[1:]):
        raise DataError(
            f"theta has shape {y.theta.shape} and alpha {alpha}: theta must be [{alpha[1]}, P], a row a dimension."
        )


def rows_of(limit: float, D: int, length: int, work: int, dtype: tf.DType) -> int:
    """Sites to a block so that `work` complex tensors [n, D, length], what value and gradient hold, take `limit` bytes.

    Raises:
        DataError: one site alone does not.
    """
    one = 2 * dtype.size * D * length * work
    if one > limit:
        raise DataError(
            f"one site with D = {D} dimensions and {length} points takes {one / 2**20:.3g} MiB, more than the memory limit of "
            f"{limit / 2**20:.3g} MiB: raise memory, take fewer points, or fewer dimensions that are not normal (non_normal)."
        )
    return int(limit // one)
