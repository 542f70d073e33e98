"""Rows with the same input, which are one observation of f: their mean, with less noise."""

# With precisions p_i = 1 / noise_i of rows at one input, w = sum_i p_i and v = sum_i p_i y_i / w,
#
#   prod_i N(y_i; f, 1 / p_i) = N(v; f, 1 / w) c,     c free of f.
#
# So neighbours are distinct inputs, whatever the number of their rows, and nothing is lost.

from __future__ import annotations

__all__ = ["inputs_at", "of_distinct", "of_inputs", "own_density", "with_copies"]

import weakref
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, Sum, White
from gpflow.likelihoods import Gaussian

from ...covariances.centring import ISOTROPIC, active_columns
from ..evidence import Observed
from .conditionals import Observations
from .groups import Copies, Group, relative_jitter
from .observed import observed_at

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
