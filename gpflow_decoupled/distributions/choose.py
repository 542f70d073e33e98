"""Base distributions by name, of a TFP distribution, and with a family per block of variables."""

from __future__ import annotations

__all__ = ["BASES", "BaseLike", "BlockBase", "TabulatedBase", "base_variable"]

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..errors import DataError, check_option
from ..inputs import is_whole
from ..probability import tfp
from ..special import hermite_lookup
from ..summaries import short_repr
from .densities import (
    Base,
    GeneralizedNormalBase,
    LaplaceBase,
    LogisticBase,
    NormalBase,
    NormalMixtureBase,
    Seed,
    SkewNormalBase,
    StudentTBase,
    Transform,
)

_KINDS: tuple[type[Base], ...] = (
    NormalBase,
    LaplaceBase,
    LogisticBase,
    StudentTBase,
    SkewNormalBase,
    GeneralizedNormalBase,
    NormalMixtureBase,
)
BASES: dict[str, type[Base]] = {kind.name: kind for kind in _KINDS}
"""Base distributions by name."""
BaseLike: TypeAlias = str | Base | tfp.distributions.Distribution
"""A name of `BASES`, a `Base`, or a scalar TFP distribution."""


def base_variable(base: BaseLike) -> Base:
    """Return the base distribution for a name, an object or a scalar TFP distribution.

    :param base: a name of `BASES`; a `Base`, returned unchanged; or a scalar TFP distribution of
        finite variance and smooth density, which is tabulated, without shapes to learn.

    Example::

        skewed = base_variable("skew_normal")
        gumbel = base_variable(tfp.distributions.Gumbel(np.float64(0.0), np.float64(1.0)))
        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=gumbel
        )
    """
    if isinstance(base, Base):
        return base
    if not isinstance(base, tfp.distributions.Distribution):
        check_option("base", base, BASES)
        return BASES[base]()
    if base.batch_shape.rank != 0 or base.event_shape.rank != 0:
        raise DataError(
            f"The base distribution {base.name} has batch shape {base.batch_shape} and event shape"
            f" {base.event_shape}; it must be one scalar distribution, the same for each dimension."
        )
    return TabulatedBase(base)


# ---
# A TFP distribution as base distribution.


_POINTS = 4096
_PADDING = 16
"""Refinement of the frequency grid beyond the density's Nyquist grid: accuracy for FFT length."""


class TabulatedBase(Base):
    """A scalar TFP distribution, tabulated on a regular grid; made by `base_variable`.

    For smooth densities of finite variance; there are no shapes and no cdf.

    :param distribution: of batch shape [].
    """

    symmetric = False
    has_cdf = False
    work = 60

    def __init__(self, distribution: tfp.distributions.Distribution) -> None:
        self.distribution, self.name = distribution, distribution.name
        low, high = _support(distribution)
        self._grid, self._step = np.linspace(low, high, _POINTS), (high - low) / (_POINTS - 1)
        log_q = _log_densities(distribution, self._grid)
        self._masses = np.exp(log_q) * self._step
        if not abs(np.sum(self._masses) - 1.0) < 1e-6:
            raise DataError(
                f"The density of the base distribution '{self.name}' has mass"
                f" {np.sum(self._masses):.7g} on the table from {low:.4g} to {high:.4g} with"
                f" {_POINTS} points: use a smoother density, or a distributions.Base of your own."
            )
        self._mean = float(np.sum(self._masses * self._grid))
        self._scale = float(np.sqrt(np.sum(self._masses * (self._grid - self._mean) ** 2)))
        self._entropy = -float(np.sum(self._masses * np.where(np.isinf(log_q), 0.0, log_q)))

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        zero = tf.reduce_sum(theta, axis=-1)
        return zero + self._mean, zero + self._scale

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        log_q = self.distribution.log_prob(tf.cast(r, self.distribution.dtype))
        return tf.cast(log_q, r.dtype) + tf.reduce_sum(theta, axis=-1)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(theta, axis=-1) + self._entropy

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Real and imaginary part of E exp(i omega r), omega [...]; 0 beyond the resolution."""
        # FFTs of the masses times 1, u and u^2, u = r - mean, tabulate it for Hermite
        # interpolation: about its mean the transform is smooth enough for the table.
        u, length = self._grid - self._mean, _POINTS * _PADDING
        step = 2.0 * math.pi / (length * self._step)
        turn = np.exp(1j * step * np.arange(length // 2 + 1) * u[0])
        waves = [
            1j**order * np.conj(np.fft.rfft(self._masses * u**order, length)) * turn
            for order in range(3)
        ]
        real, imaginary = (
            hermite_lookup([tf.constant(t, omega.dtype) for t in tables], step, tf.abs(omega))
            for tables in ([t.real for t in waves], [t.imag for t in waves])
        )
        known = tf.cast(tf.abs(omega) < math.pi / self._step, omega.dtype)
        real, imaginary = known * real, known * tf.sign(omega) * imaginary
        cos, sin = tf.cos(omega * self._mean), tf.sin(omega * self._mean)
        return cos * real - sin * imaginary, cos * imaginary + sin * real

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tf.cast(self.distribution.sample(shape, seed=seed), theta.dtype)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """Distance to the outermost grid point with over 1e-8 of the mass beyond it, [...]."""
        beyond = np.minimum(np.cumsum(self._masses), np.cumsum(self._masses[::-1])[::-1])
        reach = np.max(np.abs(self._grid - self._mean)[beyond >= 0.5e-8])
        return tf.reduce_sum(theta, axis=-1) + (reach + self._step) / self._scale


def _support(distribution: tfp.distributions.Distribution) -> tuple[float, float]:
    """Ends of a grid, twice the range of the second moment about the mode."""
    ladder = np.exp(np.arange(-12.0, 12.0, 0.05))
    points = np.concatenate([-ladder[::-1], [0.0], ladder])
    centre = float(points[np.argmax(_log_densities(distribution, points))])
    r = np.exp(np.arange(-25.0, 16.0, 0.01))
    with np.errstate(over="ignore"):
        both = [np.exp(_log_densities(distribution, centre + s * r)) for s in (-1, 1)]
    mass = (both[0] + both[1]) * r * 0.01
    second, total = mass * r**2, float(np.sum(mass))
    if not abs(total - 1.0) < 1e-3:
        raise DataError(
            f"The density of the base distribution '{distribution.name}' integrates to {total:.4g}:"
            " use a smoother one, or a distributions.Base of your own."
        )
    if np.sum(second[-200:]) > 1e-3 * np.sum(second):
        raise DataError(
            f"The base distribution '{distribution.name}' has no finite variance: its second moment"
            " diverges. Use a distribution with lighter tails, for example StudentT with df=3."
        )
    share = np.cumsum(second[::-1])[::-1]
    reach = float(r[np.argmax(share < 1e-9 * share[0])])
    return centre - 2.0 * reach, centre + 2.0 * reach


def _log_densities(distribution: tfp.distributions.Distribution, points: np.ndarray) -> np.ndarray:
    with tf.init_scope():  # also while a function is traced
        values = distribution.log_prob(tf.constant(points, distribution.dtype)).numpy()
    return np.nan_to_num(values.astype(np.float64), nan=-np.inf, neginf=-np.inf, posinf=np.inf)


# ---
# A base distribution per block of variables.


_T = TypeVar("_T")
_COPIES = 3
"""Complex tensors of the size of omega, beyond the families', for cutting and joining."""


class BlockBase(Base):
    """One family per block: the first n_1 of the v_d have the first, the next n_2 the second.

    k = n_1 + n_2 + ... is fixed: theta is [k, P], P the largest number of shapes, unused ones zero.
    With A of structure "lu" the pivots assign columns to blocks; with "full", predicted gains.

    :param blocks: pairs (base, number of variables), see `base_variable`.

    Example::

        base = BlockBase([("skew_normal", 10), ("generalized_normal", 5)])
        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=base, non_normal=15
        )
    """

    def __init__(self, blocks: Sequence[tuple[BaseLike, int]]) -> None:
        self.blocks = _checked(blocks)
        self.name = ", ".join(f"{size} {part.name}" for part, size in self.blocks)
        self.num_variables = sum(size for _, size in self.blocks)
        self.num_shapes = max(part.num_shapes for part, _ in self.blocks)
        self.symmetric = all(part.symmetric for part, _ in self.blocks)
        self.has_cdf = all(part.has_cdf for part, _ in self.blocks)
        self.work = max(part.work for part, _ in self.blocks) + _COPIES

    def __repr__(self) -> str:
        return f"BlockBase({[(part.name, size) for part, size in self.blocks]})"

    def parts(self, D: int) -> list[tuple[Base, int]]:
        if D != self.num_variables:
            raise DataError(
                f"The blocks of the base distribution '{self.name}' have {self.num_variables}"
                f" variables together, and there are {D}: change their sizes so that the sum is"
                f" {D}, or the number of variables that are not normal (non_normal)."
            )
        return self.blocks

    def start(self, D: int, dtype: tf.DType | npt.DTypeLike = tf.float64) -> tf.Tensor:
        rows = [_padded(part.start(size, dtype), self.num_shapes) for part, size in self.parts(D)]
        return tf.concat(rows, axis=0)

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        return _BlockBijector(self, tf.as_dtype(dtype))

    def check(self, theta: tf.Tensor | npt.ArrayLike) -> tf.Tensor:
        theta = tf.convert_to_tensor(theta)
        if theta.shape.rank == 1:
            raise DataError(
                f"theta has shape {theta.shape}; it must be [k, P] ="
                f" {[self.num_variables, self.num_shapes]}."
            )
        if theta.shape.rank and theta.shape[0] is not None:
            self.parts(theta.shape[0])
        return super().check(theta)

    def problem(self, theta: np.ndarray) -> str:
        rows = np.split(theta, np.cumsum([size for _, size in self.blocks])[:-1])
        messages = (
            part.problem(own[..., : part.num_shapes]) for (part, _), own in zip(self.blocks, rows)
        )
        return next(filter(None, messages), "")

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        means, scales = zip(*self._each(lambda part, own: part.raw_moments(own), theta))
        return tf.concat(means, axis=0), tf.concat(scales, axis=0)

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        found = self._each(lambda part, own, r: part.raw_log_prob(r, own), theta, r)
        return tf.concat(found, _axis(theta))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.concat(self._each(lambda part, own: part.raw_entropy(own), theta), axis=0)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        found = self._each(lambda part, own, omega: part.raw_transform(omega, own), theta, omega)
        real = tf.concat([real for real, _ in found], _axis(theta))
        if self.symmetric:
            return real, None
        zeros_too = [
            tf.zeros_like(real) if imaginary is None else imaginary for real, imaginary in found
        ]
        return real, tf.concat(zeros_too, _axis(theta))

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return tf.concat(
            self._each(lambda part, own, r: part.raw_cdf(r, own), theta, r), _axis(theta)
        )

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        place = shape.shape[0] + _axis(theta)
        seeds = iter(tf.unstack(tfp.random.split_seed(seed, n=len(self.blocks), salt="BlockBase")))

        def draw(part: Base, own: tf.Tensor) -> tf.Tensor:
            size = tf.concat([shape[:place], tf.shape(own)[:1], shape[place + 1 :]], axis=0)
            return part.raw_sample(size, own, next(seeds))

        return tf.concat(self._each(draw, theta), _axis(theta))

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.concat(self._each(lambda part, own: part.exponent(own), theta), axis=0)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.concat(self._each(lambda part, own: part.tail(own), theta), axis=0)

    def _each(self, function: Callable[..., _T], theta: tf.Tensor, *arrays: tf.Tensor) -> list[_T]:
        axis, sizes = _axis(theta), [size for _, size in self.blocks]
        rows = [
            own[..., : part.num_shapes]
            for (part, _), own in zip(self.blocks, tf.split(theta, sizes))
        ]
        columns = [tf.split(_with_axis(array, theta), sizes, axis) for array in arrays]
        return [function(part, *own) for (part, _), *own in zip(self.blocks, rows, *columns)]


def _checked(blocks: Sequence[tuple[BaseLike, int]]) -> list[tuple[Base, int]]:
    if not isinstance(blocks, (list, tuple)) or not blocks:
        raise DataError(
            f"blocks={short_repr(blocks)}: pass a list of pairs of a base distribution and a number"
            ' of variables, for example [("skew_normal", 10), ("generalized_normal", 5)].'
        )
    found = []
    for place, block in enumerate(blocks):
        if not isinstance(block, (list, tuple)) or len(block) != 2:
            raise DataError(
                f"blocks[{place}] is {short_repr(block)}: it must be a base distribution and a"
                ' number of variables, for example ("skew_normal", 10).'
            )
        base, size = block
        if isinstance(base, BlockBase):
            raise DataError(
                f"blocks[{place}] has blocks itself: put its {len(base.blocks)} blocks into the"
                " list one by one."
            )
        if not is_whole(size, 1):
            raise DataError(
                f"blocks[{place}] has {short_repr(size)} variables: it must be a whole number of at"
                " least 1; leave out a family that no variable has."
            )
        found.append((base_variable(base), int(size)))
    return found


def _axis(theta: tf.Tensor) -> int:
    return 1 - len(theta.shape)


def _with_axis(array: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
    array, axis = tf.convert_to_tensor(array), _axis(theta)
    if len(array.shape) >= -axis and array.shape[axis] == theta.shape[0]:
        return array
    return tf.broadcast_to(array, tf.broadcast_dynamic_shape(tf.shape(array), tf.shape(theta)[:-1]))


def _padded(rows: tf.Tensor, columns: int) -> tf.Tensor:
    return tf.pad(rows, [[0, 0], [0, columns - rows.shape[1]]])


class _BlockBijector(tfp.bijectors.Bijector):
    def __init__(self, base: BlockBase, dtype: tf.DType, name: str = "blocks") -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            self._sizes = [size for _, size in base.blocks]
            self._columns = [part.num_shapes for part, _ in base.blocks]
            self._bijectors = [part.bijector(dtype) for part, _ in base.blocks]
            super().__init__(
                forward_min_event_ndims=2, dtype=dtype, parameters=parameters, name=name
            )

    def _parts(self, x: tf.Tensor) -> list[tuple[tfp.bijectors.Bijector, tf.Tensor, tf.Tensor]]:
        blocks = zip(self._bijectors, self._columns, tf.split(x, self._sizes, axis=-2))
        return [(bijector, rows[..., :used], rows[..., used:]) for bijector, used, rows in blocks]

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return tf.concat(
            [tf.concat([b.forward(own), rest], -1) for b, own, rest in self._parts(x)], -2
        )

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.concat(
            [tf.concat([b.inverse(own), rest], -1) for b, own, rest in self._parts(y)], -2
        )

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.add_n(
            [b.forward_log_det_jacobian(own, event_ndims=2) for b, own, _ in self._parts(x)]
        )
