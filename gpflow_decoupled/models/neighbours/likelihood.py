"""Rows of the data given others: log likelihood and leave-one-out predictions."""

from __future__ import annotations

__all__ = [
    "LeaveOneOut", "RowMoments", "inputs_at", "left_out", "moments_of_rows", "of_distinct",
    "of_inputs", "own_density", "with_copies",
]  # fmt: skip

import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, Sum, White
from gpflow.likelihoods import Gaussian

from ...covariances.stationary import ISOTROPIC, active_columns
from ...linalg.conjugate_gradients import map_rows
from ...linalg.neighbours import log_densities
from ..evidence import Observed
from .conditionals import LocalSpread, Observations, mean_values, observed_at, rows_given_neighbours
from .groups import Copies, Group, relative_jitter

# ---
# Rows with the same input, which are one observation of f: their mean, with less noise.


# With precisions p_i = 1 / noise_i of rows at one input, w = sum_i p_i and v = sum_i p_i y_i / w,
#
#   prod_i N(y_i; f, 1 / p_i) = N(v; f, 1 / w) c,     c free of f.
#
# So neighbours are distinct inputs, whatever the number of their rows, and nothing is lost.


_LEAST = {tf.float64: 1e-10, tf.float32: 1e-5}
"""Least noise of a mean of rows, in units of the prior variance: with 1e-5, variances
given close inputs have errors of 0.2 % in single precision, and with 1e-6 some have no factor."""


class _Sums(NamedTuple):
    """Sums over the rows of the V inputs that several rows have."""

    weight: tf.Tensor
    """w [V, Q] or [V, 1]."""
    value: tf.Tensor
    """v [V, Q]."""
    within: tf.Tensor
    """Squared distances of the rows from v, in units of their noise, [V, Q]."""
    number: tf.Tensor
    """Rows [V, 1]."""


_KEPT: dict[tuple, tuple[weakref.ref, Copies | None]] = {}


def with_copies(groups: list[Group], X: tf.Tensor) -> list[Group]:
    """Groups of outputs that know which rows of X [N, D] have the same input."""
    return [one._replace(copies=_copies_of(one.kernel, X, one.rows)) for one in groups]


def _copies_of(kernel: Kernel, X: tf.Tensor, rows: np.ndarray | None) -> Copies | None:
    """The distinct inputs of a kernel among rows of X [N, D]; None if all are, or if the kernel
    has noise of its own where it is not known.

    :param rows: row numbers in their order; None for all. Kept until X is gone. Cost: N D.
    """
    if _noise_in(kernel) is None:
        return None
    columns = active_columns(kernel, int(X.shape[1])) or tuple(range(int(X.shape[1])))
    key = id(X), columns, None if rows is None else rows.tobytes()
    kept = _KEPT.get(key)
    if kept is None or kept[0]() is not X:
        with tf.init_scope():
            found = _found(X.numpy()[:, columns], rows)
        if isinstance(X, tf.Variable):
            return found
        kept = weakref.ref(X, lambda _: _KEPT.pop(key, None)), found
        _KEPT[key] = kept
    return kept[1]


def _found(X: np.ndarray, rows: np.ndarray | None) -> Copies | None:
    N = len(X)
    rows = np.arange(N) if rows is None else rows
    some = X[rows] + 0.0  # minus zero is zero
    # by sums of numbers drawn for each column, in whole numbers, which equal rows share
    bits = np.ascontiguousarray(some).view(f"u{some.itemsize}").astype(np.uint64)
    drawn = np.random.default_rng(0).integers(2**63, size=(2, some.shape[1]), dtype=np.uint64)
    mixed = ((bits ^ (bits >> np.uint64(32))) * (2 * drawn[0] + 1)) ^ drawn[1]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * (2 * drawn[1] + 1)
    sums = np.sum(mixed, axis=1, dtype=np.uint64)
    _, first, own, counts = np.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    if not np.array_equal(some[first[own]], some):
        _, first, own, counts = np.unique(
            some, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        own = own.reshape(-1)
    if len(first) == len(rows):
        return None
    several = counts > 1
    numbers = np.where(several, np.cumsum(several) - 1, -1)
    place = np.full(N, -1)
    place[rows] = numbers[own]
    return Copies(rows[np.sort(first)], place, rows[several[own]], int(several.sum()))


def _noise_in(kernel: Kernel) -> list[White] | None:
    """The summands that are noise, which copies do not share; None if some is hidden."""
    if type(kernel) is Sum:
        parts = [_noise_in(part) for part in kernel.kernels]
        return None if None in parts else [one for part in parts for one in part or ()]
    if type(kernel) is White:
        return [kernel]
    if type(kernel) in ISOTROPIC:
        return []
    return None if any(isinstance(one, White) for one in kernel.submodules) else []


def _sums_of(kernel: Kernel, copies: Copies, observed: Observations) -> _Sums:
    """Sums over rows with one input.

    :param observed: at `copies.rows`.
    """
    _, own = _prior_and_own(kernel, observed.X)
    precision, place = 1.0 / (observed.noise + own), copies.place[copies.rows]

    def total(parts: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(parts, place, copies.number)

    weight = total(precision)
    value = total(precision * observed.residuals) / weight
    distances = observed.residuals - tf.gather(value, place)
    return _Sums(weight, value, total(precision * tf.square(distances)), total(tf.ones_like(own)))


def _without(kernel: Kernel, sums: _Sums, one: Observations) -> _Sums:
    """Sums [B, ...] of an input less one of its rows [B, ...]."""
    prior, own = _prior_and_own(kernel, one.X)
    precision = 1.0 / (one.noise + own)
    # by natural parameters, whose round-off is small beside the prior precision
    least = float(np.sqrt(np.finfo(prior.dtype.as_numpy_dtype).eps)) / prior
    weight = tf.maximum(sums.weight - precision, least)
    value = (sums.weight * sums.value - precision * one.residuals) / weight
    distance = precision * tf.square(one.residuals - sums.value) * sums.weight / weight
    return _Sums(weight, value, tf.maximum(sums.within - distance, 0.0), sums.number - 1.0)


def of_inputs(group: Group, observed: Observations) -> Observations:
    """Observations of a group's distinct inputs [U, ...] from those of all rows [N, ...]."""
    copies = group.copies
    if copies is None:
        return observed if group.rows is None else observed.at(group.rows)
    sums = _sums_of(group.kernel, copies, observed.at(copies.rows))
    return _pooled(group.kernel, copies, sums, observed.at(copies.first), copies.first)


def of_distinct(part: Observed) -> tuple[Observed, float]:
    """Observations of distinct inputs, and the nats by which their log density is too low."""
    kernel, X = part.kernel, part.X
    copies = None if _noise_in(kernel) else _copies_of(kernel, X, None)
    if copies is None:
        return part, 0.0
    _, own = _prior_and_own(kernel, X)  # which is in the noise, or was never there
    rows = Observations(X, part.y, part.noise[:, None] - own)
    sums = _sums_of(kernel, copies, rows.at(copies.rows))
    means = _pooled(kernel, copies, sums, rows, tf.range(int(X.shape[0])))
    rest = float(tf.reduce_sum(own_density(kernel, means, rows)))
    inputs = means.at(copies.first)
    noise = inputs.noise + tf.gather(own, copies.first)
    return Observed(kernel, inputs.X, inputs.residuals, noise[:, 0]), rest


def inputs_at(
    group: Group,
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
    left_out: tf.Tensor | None = None,
) -> Observations:
    """Observations at the inputs of rows [B, n], by all rows that have them.

    Other parameters as of `observed_at`.

    :param left_out: rows [B] of which nothing is to be known.
    """
    rows, copies = tf.maximum(rows, 0), group.copies
    observed = observed_at(group, data, parts, rows)
    if copies is None:
        return observed
    sums = _sums_of(group.kernel, copies, observed_at(group, data, parts, copies.rows))
    alone = None if left_out is None else (left_out, observed_at(group, data, parts, left_out))
    return _pooled(group.kernel, copies, sums, observed, rows, alone)


def own_density(kernel: Kernel, mean: Observations, one: Observations) -> tf.Tensor:
    """Log density [B, Q] of a row beside that of the mean of its input's rows, in nats.

    Summed over the n rows, the density of all given f over that of their mean.

    :param mean: of the input's rows [B, ...].
    :param one: the row [B, ...].
    """
    assert mean.number is not None, "of means"
    _, own = _prior_and_own(kernel, one.X)
    noise, of_mean = one.noise + own, mean.noise + own
    ratio = tf.math.log(of_mean) / mean.number - tf.math.log(noise)
    ratio += np.log(2.0 * np.pi) * (1.0 / mean.number - 1.0)
    found = 0.5 * (ratio - tf.square(one.residuals - mean.residuals) / noise)
    return tf.where(mean.number > 1.0, found, tf.zeros_like(found))


def _pooled(
    kernel: Kernel,
    copies: Copies,
    sums: _Sums,
    observed: Observations,
    rows: tf.Tensor,
    left_out: tuple[tf.Tensor, Observations] | None = None,
) -> Observations:
    """Observations of inputs by all of their rows.

    :param observed: of rows [..., n], by number `rows`.
    :param left_out: rows [B] that neighbours [B, n] are to know nothing of, by number, and as
        observations.
    """
    place = tf.gather(tf.constant(copies.place, tf.int32), rows)
    there = (place >= 0)[..., None]
    own = _Sums(*(tf.gather(part, tf.maximum(place, 0)) for part in sums))
    if left_out is not None:
        row, one = left_out
        mine = tf.gather(tf.constant(copies.place, tf.int32), row)
        at_row = _Sums(*(tf.gather(part, tf.maximum(mine, 0)) for part in sums))
        rest = _without(kernel, at_row, one)
        same = (place == mine[:, None])[..., None]
        own = _Sums(*(tf.where(same, less[:, None], all_) for less, all_ in zip(rest, own)))
    prior, noise = _prior_and_own(kernel, observed.X)
    # of their own each observation has jitter and the kernel's noise, which will be added
    noise = tf.maximum(1.0 / own.weight, _LEAST[prior.dtype] * prior) - noise
    nothing = tf.zeros_like(observed.residuals)
    return Observations(
        observed.X,
        tf.where(there, own.value, observed.residuals),
        tf.where(there, noise, observed.noise),
        tf.where(there, own.number, tf.ones_like(prior)),
        tf.where(there, own.within, nothing),
    )


def _prior_and_own(kernel: Kernel, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Prior variances of f, and the noise that each observation has besides the likelihood's, at X
    [..., D]: [..., 1] each.
    """
    prior = kernel(tf.reshape(X, [-1, X.shape[-1]]), full_cov=False)
    prior = tf.reshape(prior, tf.concat([tf.shape(X)[:-1], [1]], axis=0))
    own = relative_jitter(X.dtype) * prior
    return prior, tf.add_n(
        [own, *(one.variance + tf.zeros_like(own) for one in _noise_in(kernel) or ())]
    )


# ---


_ENTRIES = 8_000_000
"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class RowMoments(NamedTuple):
    """Moments of observed outputs given their neighbours, and the outputs themselves."""

    residual: tf.Tensor
    """[B, P]: outputs less the mean function; NaN where they are missing."""
    mean: tf.Tensor
    """[B, P]: less the mean function too."""
    variance: tf.Tensor
    """[B, P]: of the observations, noise included."""
    spread: tf.Tensor
    """[B, P]: a factor of the variance."""
    count: tf.Tensor
    """[B, P]: rows that share an input, and so these moments, which are of their mean."""
    own: tf.Tensor
    """[B, P]: log density of a row given the mean of its input's, in nats."""


class LeaveOneOut(NamedTuple):
    """Predictions of observed rows, each from its nearest other rows.

    Example::

        score = float(np.mean(model.leave_one_out(rows).log_density))
    """

    mean: np.ndarray
    """[B, P]: of the observation."""
    variance: np.ndarray
    """[B, P]: of the observation, noise included."""
    log_density: np.ndarray
    """[B]: in nats, summed over the observed outputs."""
    spread: np.ndarray
    """[B, P]: the factor of the variance by the errors nearby; ones without that."""


def moments_of_rows(
    groups: list[Group],
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
    neighbours: tf.Tensor,
    spread: LocalSpread | None = None,
    leave_out: bool = False,
) -> RowMoments:
    """Moments of rows given their neighbours, (N1), by blocks of rows.

    :param groups: G groups of outputs.
    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param parts: the mean function and the likelihood.
    :param rows: row numbers [B].
    :param neighbours: row numbers [G, B, m], -1 for none.
    :param spread: scales the variances.
    :param leave_out: rows are predicted each alone, also from others with its input.
    :return: [B, P] each.
    """
    width = int(neighbours.shape[-1]) + 1
    size = max(1, _ENTRIES // (width * width * max(1, int(data[0].shape[1]) // 8)))

    def of_block(rows: tf.Tensor, neighbours: tf.Tensor) -> RowMoments:
        near = tf.unstack(neighbours, num=len(groups), axis=1)
        found = [
            _of_group(group, data, parts, rows, near[g], spread, leave_out)
            for g, group in enumerate(groups)
        ]
        return RowMoments(*(tf.concat(part, axis=1) for part in zip(*found)))

    near = tf.transpose(neighbours, [1, 0, 2])
    if rows.shape[0] is not None and rows.shape[0] > size:
        pairs = zip(_split(rows, size), _split(near, size))
        found = [_recomputed(of_block, *pair) for pair in pairs]
        return RowMoments(*(tf.concat(part, axis=0) for part in zip(*found)))
    kind = data[1].dtype
    return RowMoments(*map_rows(of_block, (rows, near), size, RowMoments(*[kind] * 6)))


def left_out(
    groups: list[Group],
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: np.ndarray,
    neighbours: tf.Tensor,
    spread: LocalSpread | None = None,
) -> LeaveOneOut:
    """Predict observed rows [B] from their neighbours [G, B, m], with the mean function.

    Parameters and cost as in `moments_of_rows`.
    """
    numbers = tf.constant(rows, tf.int32)
    found = moments_of_rows(groups, data, parts, numbers, neighbours, spread, leave_out=True)
    prior_mean = mean_values(parts[0], tf.gather(data[0], rows), int(data[1].shape[1]))
    terms, there = log_densities(*found[:3]).numpy(), ~np.isnan(found.residual)
    mean = (prior_mean + found.mean).numpy()
    scores = np.sum(np.where(there, terms, 0.0), axis=1)  # NaN where a factorisation failed
    return LeaveOneOut(mean, found.variance.numpy(), scores, found.spread.numpy())


def _split(array: tf.Tensor, size: int) -> list[tf.Tensor]:
    return [array[first : first + size] for first in range(0, int(array.shape[0]), size)]


def _recomputed(
    of_block: Callable[..., RowMoments], rows: tf.Tensor, neighbours: tf.Tensor
) -> RowMoments:
    """A block whose matrices the gradient computes again instead of keeping."""
    # TensorFlow cannot do this inside of a loop, so blocks are unrolled.
    # whole numbers have no gradient; as an argument they would be watched in vain
    run = tf.recompute_grad(lambda _: tuple(of_block(rows, neighbours)))
    return RowMoments(*run(tf.zeros([], tf.float32)))


def _of_group(
    group: Group,
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
    neighbours: tf.Tensor,
    spread: LocalSpread | None,
    leave_out: bool,
) -> RowMoments:
    there = neighbours >= 0
    numbers = tf.maximum(tf.concat([neighbours, rows[:, None]], axis=1), 0)
    joint = observed_at(group, data, parts, numbers)
    row = Observations(*(part[:, -1:] for part in joint[:3]))
    count, own = tf.ones_like(row.residuals), tf.zeros_like(row.residuals)
    if group.copies is not None and leave_out:
        near = inputs_at(group, data, parts, neighbours, rows)
        alone = row._replace(number=count[..., :1], within=own)
        joint = Observations(*(tf.concat(pair, axis=1) for pair in zip(near, alone)))
    elif group.copies is not None:
        joint = inputs_at(group, data, parts, numbers)
        mean = Observations(*(part[:, -1:] for part in joint if part is not None))
        count, own = count * mean.number, own_density(group.kernel, mean, row)
    found = rows_given_neighbours(group.kernel, joint, there, spread)
    observed = tf.gather(tf.gather(data[1], rows), group.columns, axis=-1)
    residual = tf.where(tf.math.is_nan(observed), observed, joint.residuals[:, -1])
    return RowMoments(residual, *found, count[:, 0], own[:, 0])
