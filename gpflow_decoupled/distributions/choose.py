"""Find a base distribution by name."""

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
from .base_density import Base, Seed, Transform
from .densities import (
    GeneralizedNormalBase,
    LaplaceBase,
    LogisticBase,
    NormalBase,
    NormalMixtureBase,
    SkewNormalBase,
    StudentTBase,
    VarianceGammaBase,
)

# ---
# A TFP distribution as base distribution.


Maker = Callable[[tf.Tensor], tfp.distributions.Distribution]
"""theta [..., P] -> a distribution of batch shape [...]."""
_TAIL = 1e-8  # mass beyond `tail`
_PADDING = 16
"""Refinement of the frequency grid beyond the density's Nyquist grid: accuracy for FFT length."""


class TabulatedBase(Base):
    """A base distribution tabulated on a regular grid from a TFP distribution.

    For smooth densities; there is no cdf.

    :param make: theta [..., P] -> a distribution of batch shape [...] in the dtype of theta.
    :param default: the shapes [P] to start from; empty if there is nothing to learn.
    :param support: the ends of the grid; by default twice the range of the mass at `default`.
    :param points: length of the grid, a power of two.
    :param name: the name in messages and results.

    Example::

        def make(theta):  # a skewed density with one shape
            return tfp.distributions.SinhArcsinh(
                tf.zeros_like(theta[..., 0]), 1.0, skewness=theta[..., 0]
            )

        base = TabulatedBase(make, default=(0.3,), name="sinh-arcsinh")
    """

    symmetric = False
    has_cdf = False
    work = 60

    def __init__(
        self,
        make: Maker,
        default: tuple[float, ...] = (),
        support: tuple[float, float] | None = None,
        points: int = 4096,
        name: str = "tabulated",
    ) -> None:
        if points < 2 or points & (points - 1):
            raise DataError(
                f"points={points}: the length of the table must be a power of two, for example"
                " 4096."
            )
        self.make, self.default, self.num_shapes, self.name = (
            make,
            tuple(default),
            len(default),
            name,
        )
        self.points = points
        theta = np.array([self.default]).reshape(1, self.num_shapes)
        low, high = (
            support if support is not None else _support(make, tf.constant(theta, tf.float64), name)
        )
        self._low, self._step = low, (high - low) / (points - 1)
        problem = self.problem(theta)
        if problem:
            raise DataError(problem)

    def problem(self, theta: np.ndarray) -> str:
        with tf.init_scope():  # theta is known here, also while a function is traced
            mass = tf.reduce_sum(self._masses(tf.constant(theta)), axis=-1).numpy()
        limit = 1e-6 if theta.dtype == np.float64 else 1e-4
        if np.all(np.abs(mass - 1.0) < limit):
            return ""
        return (
            f"The density of the base distribution '{self.name}' has mass {mass.ravel()} on the"
            f" table from {self._low:.4g} to {self._low + self._step * (self.points - 1):.4g} with"
            f" {self.points} points: give a wider support=(low, high), more points, or a smoother"
            " density."
        )

    def _grid(self, dtype: tf.DType) -> tf.Tensor:
        return tf.constant(self._low + self._step * np.arange(self.points), dtype)

    def _log_density(self, theta: tf.Tensor) -> tf.Tensor:
        return self.make(theta[..., None, :]).log_prob(self._grid(theta.dtype))

    def _masses(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.exp(self._log_density(theta)) * self._step

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        masses, grid = self._masses(theta), self._grid(theta.dtype)
        mean = tf.reduce_sum(masses * grid, axis=-1)
        return mean, tf.sqrt(tf.reduce_sum(masses * tf.square(grid - mean[..., None]), axis=-1))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return self.make(theta).log_prob(r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        log_q = self._log_density(theta)
        finite = tf.where(tf.math.is_inf(log_q), tf.zeros_like(log_q), log_q)
        return -tf.reduce_sum(tf.exp(log_q) * finite, axis=-1) * self._step

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Real and imaginary part of E exp(i omega r), omega [...]; 0 beyond the resolution."""
        # FFTs of the masses times 1, u and u^2, u = r - mean, tabulate it for Hermite
        # interpolation.
        masses, grid = self._masses(theta), self._grid(theta.dtype)
        # about its mean the transform is smooth enough for the table; the last line turns it back
        centre = tf.stop_gradient(tf.reduce_sum(masses * grid, axis=-1, keepdims=True))
        u = grid - centre
        length = self.points * _PADDING
        step = 2.0 * math.pi / (length * self._step)
        phase = step * tf.range(length // 2 + 1, dtype=theta.dtype) * (self._low - centre)
        turn = tf.complex(tf.cos(phase), tf.sin(phase))
        tables = []
        for moment in (masses, masses * u, -masses * tf.square(u)):
            waves = tf.math.conj(tf.signal.rfft(moment, fft_length=[length])) * turn
            tables.append(waves)
        real = hermite_lookup(
            [tf.math.real(tables[0]), -tf.math.imag(tables[1]), tf.math.real(tables[2])],
            step,
            tf.abs(omega),
        )
        imaginary = hermite_lookup(
            [tf.math.imag(tables[0]), tf.math.real(tables[1]), tf.math.imag(tables[2])],
            step,
            tf.abs(omega),
        )
        known = tf.cast(tf.abs(omega) < math.pi / self._step, omega.dtype)
        real, imaginary = known * real, known * tf.sign(omega) * imaginary
        angle = omega * centre[..., 0]
        cos, sin = tf.cos(angle), tf.sin(angle)
        return cos * real - sin * imaginary, cos * imaginary + sin * real

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(self.make(theta).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """Distance to the outermost grid point with over 1e-8 of the mass beyond it, [...]."""
        masses = tf.stop_gradient(self._masses(theta))
        mean, scale = (tf.stop_gradient(part) for part in self.raw_moments(theta))
        distance = tf.abs(self._grid(theta.dtype) - mean[..., None])
        left, right = tf.cumsum(masses, axis=-1), tf.cumsum(masses, axis=-1, reverse=True)
        outside = tf.minimum(left, right) < 0.5 * _TAIL
        return (
            tf.reduce_max(tf.where(outside, tf.zeros_like(distance), distance), axis=-1)
            + self._step
        ) / scale


def _support(make: Maker, theta: tf.Tensor, name: str) -> tuple[float, float]:
    centre = _centre(make, theta)
    s = np.arange(-25.0, 16.0, 0.01)
    r = np.exp(s)
    both = [np.exp(_values(make, theta, centre + sign * r)) * r * 0.01 for sign in (-1.0, 1.0)]
    mass = both[0] + both[1]
    second, total = mass * r**2, float(np.sum(mass))
    if not np.isfinite(total) or abs(total - 1.0) > 1e-3:
        raise DataError(
            f"The density of the base distribution '{name}' integrates to {total:.4g}: pass"
            " support=(low, high)."
        )
    if np.sum(second[-200:]) > 1e-3 * np.sum(second):
        raise DataError(
            f"The base distribution '{name}' has no finite variance: its second moment diverges."
            " Use a distribution with lighter tails, for example StudentT with df=3."
        )
    share = np.cumsum(second[::-1])[::-1]
    reach = float(r[np.argmax(share < 1e-9 * share[0])])
    return centre - 2.0 * reach, centre + 2.0 * reach


def _centre(make: Maker, theta: tf.Tensor) -> float:
    points = np.concatenate(
        [-np.exp(np.arange(12.0, -12.0, -0.05)), [0.0], np.exp(np.arange(-12.0, 12.0, 0.05))]
    )
    values = _values(make, theta, points)
    return float(points[np.nanargmax(values)])


def _values(make: Maker, theta: tf.Tensor, points: np.ndarray) -> np.ndarray:
    values = make(theta[..., None, :]).log_prob(tf.constant(points, theta.dtype))
    return np.nan_to_num(np.reshape(values.numpy(), [-1]), nan=-np.inf)


# ---


_KINDS: tuple[type[Base], ...] = (
    NormalBase,
    LaplaceBase,
    LogisticBase,
    StudentTBase,
    SkewNormalBase,
    GeneralizedNormalBase,
    VarianceGammaBase,
    NormalMixtureBase,
)
BASES: dict[str, type[Base]] = {kind.name: kind for kind in _KINDS}
"""Base distributions by name."""
BaseLike: TypeAlias = str | Base | tfp.distributions.Distribution
"""A name of `BASES`, a `Base`, or a scalar TFP distribution."""


def base_variable(base: BaseLike) -> Base:
    """Return the base distribution for a name, an object or a scalar TFP distribution.

    :param base: a name of `BASES`; a `Base`, returned unchanged; or a scalar TFP distribution of
        finite variance, which is tabulated.

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
    _refuse_without_variance(base)
    return TabulatedBase(lambda theta: _Cast(base, theta), name=base.name)


def _refuse_without_variance(distribution: tfp.distributions.Distribution) -> None:
    try:
        variance = float(distribution.variance())
    except NotImplementedError:  # the tabulation will check the second moment
        variance = 1.0
    if not np.isfinite(variance):
        raise DataError(
            f"The base distribution {distribution.name} has variance {variance}: affine-independent"
            " inference needs a finite one. Use a distribution with lighter tails, for example"
            " StudentT with df=3."
        )


class _Cast:
    def __init__(self, distribution: tfp.distributions.Distribution, theta: tf.Tensor) -> None:
        self._distribution, self._theta = distribution, theta

    def log_prob(self, r: tf.Tensor) -> tf.Tensor:
        zero = tf.reduce_sum(self._theta, axis=-1)
        return (
            tf.cast(self._distribution.log_prob(tf.cast(r, self._distribution.dtype)), r.dtype)
            + zero
        )

    def sample(self, n: int | tf.Tensor, seed: Seed = None) -> tf.Tensor:
        shape = tf.concat([[n], tf.shape(self._theta)[:-1]], axis=0)
        return tf.cast(self._distribution.sample(shape, seed=seed), self._theta.dtype)


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
