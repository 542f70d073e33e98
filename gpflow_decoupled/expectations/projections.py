"""Projections y, sites g and the limit of memory."""

from __future__ import annotations

__all__ = [
    "Projections", "Reach", "Site", "check_projections", "map_blocks", "other_factors",
    "product", "rows_of", "tiny",
]  # fmt: skip

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from ..errors import DataError

# ---
# Products with gradients that never divide, and sums over sites in blocks.


def product(factors: tf.Tensor) -> tf.Tensor:
    """Product over axis 1 of [N, D, T], real or complex: [N, T]."""
    # The gradient (A16) is right at zeros, unlike `tf.math.cumprod`'s.

    @tf.custom_gradient
    def multiplied(factors: tf.Tensor) -> tuple:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream[:, None] * tf.math.conj(other_factors(factors))

        return tf.reduce_prod(factors, axis=1), gradient

    return multiplied(factors)


def other_factors(factors: tf.Tensor) -> tf.Tensor:
    """For each factor, the product of all others along axis 1, [N, D, T]."""
    before = tf.math.cumprod(factors, axis=1, exclusive=True)
    return before * tf.math.cumprod(factors, axis=1, exclusive=True, reverse=True)


def map_blocks(
    function: Callable[..., tf.Tensor],
    per_site: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    rows: int,
) -> tf.Tensor:
    """Return function(*per_site, *shared) [N], computed in blocks of rows.

    The gradient recomputes each block, and reaches only the tensors passed here. XLA compiles one
    block only.
    """
    per_site, shared = list(per_site), list(shared)
    N = per_site[0].shape[0]
    if N is not None and N <= rows:
        return function(*per_site, *shared)
    count = len(per_site)

    @tf.custom_gradient
    def mapped(*arguments: tf.Tensor) -> tuple:
        sites, common = arguments[:count], arguments[count:]
        total = tf.shape(sites[0])[0]
        blocks = (total + rows - 1) // rows

        def value(start: tf.Tensor) -> tf.Tensor:
            return function(*(part[start : start + rows] for part in sites), *common)

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _block_gradients(function, sites, common, upstream, rows)

        pieces = tf.TensorArray(sites[0].dtype, blocks, infer_shape=False, element_shape=[None])
        loop = tf.while_loop(
            lambda i, _: i < blocks,
            lambda i, pieces: (i + 1, pieces.write(i, value(i * rows))),
            (0, pieces),
            parallel_iterations=1,
        )
        return tf.ensure_shape(loop[1].concat(), [N]), gradient

    return mapped(*per_site, *shared)


def _block_gradients(
    function: Callable[..., tf.Tensor],
    sites: Sequence[tf.Tensor],
    common: Sequence[tf.Tensor],
    upstream: tf.Tensor,
    rows: int,
) -> list[tf.Tensor]:
    total = tf.shape(sites[0])[0]
    blocks = (total + rows - 1) // rows

    def step(i: tf.Tensor, arrays: tuple, sums: tuple) -> tuple:
        parts = [part[i * rows : (i + 1) * rows] for part in sites]
        with tf.GradientTape() as tape:
            tape.watch([*parts, *common])
            value = tf.reduce_sum(function(*parts, *common) * upstream[i * rows : (i + 1) * rows])
        gradients = tape.gradient(
            value, [*parts, *common], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        written = tuple(array.write(i, part) for array, part in zip(arrays, gradients))
        return i + 1, written, tuple(old + new for old, new in zip(sums, gradients[len(sites) :]))

    arrays = tuple(
        tf.TensorArray(part.dtype, blocks, infer_shape=False, element_shape=[None, *part.shape[1:]])
        for part in sites
    )
    sums = tuple(tf.zeros_like(part) for part in common)
    _, arrays, sums = tf.while_loop(
        lambda i, *_: i < blocks, step, (0, arrays, sums), parallel_iterations=1
    )
    return [
        *(tf.ensure_shape(array.concat(), part.shape) for array, part in zip(arrays, sites)),
        *sums,
    ]


# ---


# | symbol | code | shape |
# |---|---|---|
# | y_n = sum_d alpha_nd v_d + beta_n + noise, v_d independent, standardised | `Projections` | |
# | alpha, beta, tau^2 (variance of the noise) | `alpha`, `beta`, `noise` | [N, D], [N], [N] |
# | s_n, standard deviation of y_n: s_n^2 = sum_d alpha_nd^2 + tau_n^2 | `spread` | [N] |
# | theta, the P shapes of each v_d | `theta` | [D, P] |
# | g_n, the log density of observation n given y_n, and its parameters | `Site` | [N] each |


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
