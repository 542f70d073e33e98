"""Outputs that share neighbours, and their noise."""

from __future__ import annotations

__all__ = [
    "Copies", "EarlierNeighbours", "Group", "NOTHING", "add_noise_rows", "appended_order",
    "arrays_of", "by_noise", "check_neighbours_kernel", "check_new", "check_noise", "check_rows",
    "find_neighbours", "groups_of", "jitter_variances", "most_neighbours", "noise_at_floor",
    "noise_of_group", "noise_of_new", "noise_rows", "noise_variances", "random_order",
    "refuse_spread_of_sites", "relative_jitter", "telling_groups", "warn_at_floor",
]  # fmt: skip

import abc
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import RegressionData, TensorType
from gpflow.functions import Function
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel
from gpflow.utilities.parameter_or_function import evaluate_parameter_or_function

from ...covariances.latents import check_indices, prior_variance
from ...covariances.neighbours import earlier_neighbours, row_index
from ...errors import DataError
from ...inputs import (
    Array,
    as_array,
    as_pair,
    as_values,
    check_finite_entries,
    check_type,
    float_type,
)
from ...likelihoods.facts import name_of
from ...user_warnings import warn_user
from ..checks import check_densities, check_reach, check_shapes_of_data

_JITTER = {tf.float64: 1e-6, tf.float32: 1e-4}
"""The noise that every observation has, in units of its prior variance. Below it the covariance of
duplicated rows is singular to round-off."""
NOTHING = 1e-8
"""Share of an observation's information that is none, and makes no neighbour."""


class Copies(NamedTuple):
    """The distinct inputs of rows of data, some of which several rows have."""

    first: np.ndarray
    """The first row of each input [U], in their order."""
    place: np.ndarray
    """The number of a row's input among those of several rows, -1 for others, [N]."""
    rows: np.ndarray
    """The rows of the latter inputs [R]."""
    number: int
    """V, of these inputs."""


class Group(NamedTuple):
    """Outputs with the same kernel and observed rows, and so the same neighbours."""

    kernel: Kernel
    columns: tuple[int, ...]
    """Of Y."""
    rows: np.ndarray | None
    """The rows [N_g] that are observed in these columns, in their order; None for all."""
    copies: Copies | None = None
    """Which of these rows have the same input; None if none have."""


def groups_of(kernel: Kernel, Y: tf.Tensor, silent: np.ndarray | None = None) -> list[Group]:
    """Return the P outputs in groups: one if they share a kernel and none is missing.

    :param kernel: a kernel for all outputs, `SharedIndependent` or `SeparateIndependent`.
    :param Y: [N, P], with NaN for missing entries.
    :param silent: true for rows that say nothing, and are no neighbours, [N].
    """
    columns = tuple(range(int(Y.shape[1])))
    kernels = list(kernel.latent_kernels) if isinstance(kernel, MultioutputKernel) else [kernel]
    with tf.init_scope():  # Y may be a variable, which has no value inside of a graph
        missing = np.isnan(Y.numpy())
    if len(kernels) == 1 and not missing.any():
        return [Group(kernels[0], columns, None if silent is None else np.flatnonzero(~silent))]
    if silent is not None:
        missing |= silent[:, None]
    return [
        Group(
            kernels[column % len(kernels)],
            (column,),
            np.flatnonzero(~missing[:, column]) if missing[:, column].any() else None,
        )
        for column in columns
    ]


def telling_groups(kernel: Kernel, likelihood: Gaussian, X: tf.Tensor, Y: tf.Tensor) -> list[Group]:
    """`groups_of` without rows whose known noise is so large that they say nothing.

    :param X: inputs [N, D]; Y is [N, P].
    """
    # sites are variables, and move where functions are compiled
    own = _parameter(likelihood)[0]
    if noise_rows(likelihood) is None or not isinstance(own, Parameter):
        return groups_of(kernel, Y)
    with tf.init_scope():
        prior = tf.transpose(prior_variance(kernel, X, full_cov=False))
        noise = noise_variances(likelihood, X, tf.range(tf.shape(X)[0]))
        known = 1.0 / (prior + noise).numpy()
    silent = np.all(known < NOTHING * np.max(known, axis=0), axis=1)
    return groups_of(kernel, Y, silent if silent.any() else None)


def by_noise(groups: list[Group], likelihood: Gaussian, X: tf.Tensor) -> list[Group]:
    """Split groups into outputs with one covariance matrix: the same noise, too.

    :param X: inputs [N, D] of the data.
    """
    rows = tf.zeros([1], tf.int32)
    if noise_variances(likelihood, X[:1], rows).shape[-1] == 1:
        return groups
    return [group._replace(columns=(one,)) for group in groups for one in group.columns]


def noise_variances(likelihood: Gaussian, X: tf.Tensor, rows: tf.Tensor | None) -> tf.Tensor:
    """Noise variances [..., n, 1], or [..., n, P] where outputs differ.

    :param likelihood: with one noise, one per output or observation, or a function of the inputs.
    :param X: inputs [..., n, D].
    :param rows: numbers of the observations [..., n]; None for new inputs.
    """
    parameter, lower, squared = _parameter(likelihood)
    if isinstance(parameter, Function):
        flat = tf.reshape(X, [-1, X.shape[-1]])
        values = evaluate_parameter_or_function(parameter, flat, lower_bound=lower)
        values = tf.reshape(values, tf.concat([tf.shape(X)[:-1], [values.shape[-1]]], axis=0))
    else:
        values = tf.convert_to_tensor(parameter)
        if noise_rows(likelihood) is not None:
            if rows is None:
                raise DataError(
                    "The likelihood has a noise variance for each row of the data, and none for"
                    " new inputs: pass theirs, model.predict_y(Xnew, noise_variance=variances). Or"
                    " make the noise a function of the inputs,"
                    " gpflow.likelihoods.Gaussian(variance=gpflow.functions.Constant(0.1))."
                )
            values = tf.gather(values, rows)
        else:
            columns = values.shape[-1] if values.shape.rank else 1
            shape = tf.concat([tf.shape(X)[:-1], [columns]], axis=0)
            values = tf.broadcast_to(tf.reshape(values, [-1]), shape)
    return tf.square(values) if squared else values


def noise_of_group(noise: tf.Tensor, group: Group) -> tf.Tensor:
    """The noise [..., n, 1] of all outputs, or [..., n, Q] of the group's from [..., n, P]."""
    return noise if noise.shape[-1] == 1 else tf.gather(noise, group.columns, axis=-1)


def noise_rows(likelihood: Gaussian) -> int | None:
    """N of a variance [N, 1] or [N, P] known for each observation; None for others."""
    parameter, _, _ = _parameter(likelihood)
    shape = None if isinstance(parameter, Function) else parameter.shape
    return int(shape[0]) if shape is not None and shape.rank == 2 and int(shape[0]) > 1 else None


def noise_of_new(likelihood: Gaussian, X: tf.Tensor, known: TensorType | None) -> tf.Tensor:
    """Noise variances [..., N, 1] or [..., N, P] at new inputs X [..., N, D].

    :param known: those variances, if each row of the data has its own; None for other noise. Inside
        a `tf.function` numbers of rows may be compared when it runs.
    """
    if known is None:
        return noise_variances(likelihood, X, None)
    values = tf.cast(_variances_of_rows(likelihood, known, tuple(X.shape[:-1])), X.dtype)
    rows = "noise_variance and Xnew have different numbers of rows."
    # one row would stand for all
    tf.debugging.assert_equal(tf.shape(values)[:-1], tf.shape(X)[:-1], rows)
    return values


def add_noise_rows(likelihood: Gaussian, new: TensorType | None, num_rows: int) -> None:
    """Append the noise variances [N*, 1] or [N*, P] of new rows to those known for each row.

    :raises DataError: if they are needed and not given, or given and not needed; for other shapes,
        and for numbers that are not above the lower bound.
    """
    parameter, _, squared = _parameter(likelihood)
    if new is None:
        if noise_rows(likelihood) is not None:
            raise DataError(
                "The likelihood has a noise variance for each row of the data, and none for the new"
                " ones: model.update((X, Y), noise_variance=variances), of shape"
                f" {[num_rows, int(parameter.shape[1])]}."
            )
        return
    values = _variances_of_rows(likelihood, new, (num_rows,))
    values = as_values(values, "noise_variance", parameter.dtype)
    values, old = np.sqrt(values) if squared else values, tf.convert_to_tensor(parameter)
    values = gpflow.Parameter(
        tf.concat([old, tf.cast(values, old.dtype)], axis=0),
        transform=parameter.transform,
        prior=parameter.prior,
        trainable=bool(parameter.trainable),
    )
    setattr(likelihood, "scale" if squared else "variance", values)


def _variances_of_rows(
    likelihood: Gaussian, variances: TensorType, rows: tuple[int | None, ...]
) -> Array:
    """Check variances [*rows, 1] or [*rows, P] for a likelihood with those of each row."""
    parameter, lower, squared = _parameter(likelihood)
    if noise_rows(likelihood) is None:
        raise DataError(
            "noise_variance is for a likelihood with a noise variance for each row, and this"
            " one has another noise: leave it out."
        )
    shape = [*rows, int(parameter.shape[1])]
    values = as_array(variances, "noise_variance", parameter.dtype)
    check_type(values, "noise_variance", parameter.dtype, labels=True)
    if not tf.TensorShape(values.shape).is_compatible_with(shape):
        raise DataError(f"noise_variance has shape {tuple(values.shape)}; pass {shape}.")
    known = tf.get_static_value(values)  # none inside of a graph
    least = lower**2 if squared else lower
    if known is not None and not np.all(known > least):
        raise DataError(f"noise_variance has entries that are not above the lower bound {least:g}.")
    return tf.ensure_shape(values, shape) if known is None else known


def relative_jitter(dtype: tf.DType) -> float:
    """The least noise in units of the prior variance: 1e-6 in double precision, 1e-4 in single."""
    return _JITTER[dtype]


def jitter_variances(groups: list[Group], X: tf.Tensor) -> tf.Tensor:
    """The part of each output's noise that keeps covariances positive definite, [..., N, P] at X
    [..., N, D].
    """
    variances = [group.kernel(X, full_cov=False) for group in groups for _ in group.columns]
    return relative_jitter(X.dtype) * tf.stack(variances, axis=-1)


def noise_at_floor(groups: list[Group], likelihood: Gaussian, X: tf.Tensor) -> np.ndarray:
    """Compare each output's mean noise over the rows X [N, D] with its floor, [P] bool.

    The floor is the jitter, or the likelihood's lower bound if larger.
    """
    noise = noise_variances(likelihood, X, tf.range(tf.shape(X)[0]))
    jitter = tf.reduce_mean(jitter_variances(groups, X), axis=0)
    least = np.maximum(jitter, 1.01 * float(likelihood.variance_lower_bound))
    return np.mean(noise, axis=0) <= least


def _parameter(likelihood: Gaussian) -> tuple[Function | tf.Variable, float, bool]:
    """The variance or scale, its lower bound, and whether it is a scale."""
    if likelihood.variance is None:
        return likelihood.scale, likelihood.scale_lower_bound, True
    return likelihood.variance, likelihood.variance_lower_bound, False


# ---
# The order of the rows, and their neighbours.


def random_order(num_rows: int, seed: int) -> np.ndarray:
    """All rows [N] in a random order."""
    # Early rows then have far neighbours, which inform about long lengthscales.
    return np.random.default_rng(seed).permutation(num_rows).astype(np.int32)


def appended_order(order: np.ndarray, num_rows: int) -> np.ndarray:
    """Append new rows to an order [N]: [N + num_rows]."""
    return np.concatenate([order, np.arange(len(order), len(order) + num_rows, dtype=np.int32)])


def most_neighbours(groups: list[Group], X: tf.Tensor, before: bool) -> int:
    """The most inputs of X [N, D] that a row can have as neighbours; see `find_neighbours`."""
    N = int(X.shape[0])
    inputs = [N if one.copies is None else len(one.copies.first) for one in groups]
    others = [size - (before or one.copies is None) for size, one in zip(inputs, groups)]
    return max(1, *others)


def find_neighbours(
    groups: list[Group],
    X: tf.Tensor,
    order: np.ndarray,
    rows: np.ndarray,
    count: int,
    before: bool,
) -> np.ndarray:
    """Find the neighbours of rows of the data, for each group of outputs.

    :param groups: G groups; X is [N, D].
    :param order: all rows [N] in the ordering.
    :param rows: B of the rows.
    :param count: m.
    :param before: search earlier rows in the ordering; False searches all others.
    :return: row numbers [G, B, m], int32, one for each input, -1 where there are fewer.
    """
    found: dict[tuple, np.ndarray] = {}
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    # latents with different kernels or missing entries have different neighbours
    keys = [(id(g.kernel), None if g.rows is None else g.columns) for g in groups]
    for key, group in zip(keys, groups):
        if key not in found:
            found[key] = _of_group(group, X, order, rank, rows, count, before)
    return np.stack([found[key] for key in keys])


def _of_group(
    group: Group,
    X: tf.Tensor,
    order: np.ndarray,
    rank: np.ndarray,
    rows: np.ndarray,
    count: int,
    before: bool,
) -> np.ndarray:
    copies, inputs = group.copies, tf.gather(X, rows)
    if before:
        usable = order
        if group.rows is not None:
            usable = order[np.isin(order, group.rows)]
        if copies is not None:  # an input comes where the earliest of its rows comes
            own, least = copies.place[copies.rows], np.full(copies.number, len(order), rank.dtype)
            np.minimum.at(least, own, rank[copies.rows])
            first = rank.copy()
            first[copies.rows] = least[own]
            usable = usable[first[usable] == rank[usable]]
            rank = first
        # how many usable rows come before each row, which is its own place if it is one of them
        place = np.searchsorted(rank[usable], rank[rows])
        places = earlier_neighbours(group.kernel, tf.gather(X, usable), inputs, place, count)
    else:
        usable = np.arange(len(order)) if group.rows is None else group.rows
        usable = usable if copies is None else copies.first
        place = np.minimum(np.searchsorted(usable, rows), len(usable) - 1)
        own = usable[place] == rows
        if copies is not None:  # the other rows of the same input are neighbours
            own &= copies.place[rows] < 0
        itself = tf.constant(np.where(own, place, -2), tf.int32)
        index = row_index(group.kernel, tf.gather(X, usable))
        places = index.nearest(inputs, count, itself=itself).numpy()
    return np.where(places < 0, -1, usable[np.maximum(places, 0)]).astype(np.int32)


# ---
# The neighbours of the likelihood of all rows, which a model keeps.


class EarlierNeighbours:
    """The nearest earlier rows of all rows, for `training_loss`, a mixin."""

    data: tuple[tf.Tensor, tf.Tensor]
    num_neighbours: int
    _earlier: tf.Variable | None = None

    @property
    @abc.abstractmethod
    def groups(self) -> list[Group]:
        """Outputs that share neighbours."""

    @abc.abstractmethod
    def neighbours_of(
        self, rows: np.ndarray, *, before: bool = True, num_neighbours: int | None = None
    ) -> tf.Tensor:
        """Row numbers [G, B, m] of the nearest earlier rows of some rows [B]."""

    def refresh_neighbours(self) -> None:
        """Search the neighbours of `training_loss` again, at the present kernel.

        Functions compiled before see the new ones. Cost: N^2 D, or N m log N by trees in up to
        eight columns.
        """
        self._keep(self.neighbours_of(np.arange(int(self.data[0].shape[0]))))

    def earlier_neighbours(self) -> tf.Variable | None:
        """Row numbers [G, N, m], searched where they are missing: at first, and of new rows."""
        N = int(self.data[0].shape[0])
        groups = self.groups
        G, count = (
            len(groups),
            min(self.num_neighbours, most_neighbours(groups, self.data[0], True)),
        )
        known = (0, 0, 0) if self._earlier is None else tuple(self._earlier.shape)
        if known[0] == G and known[1] < N and known[2] == count:
            # rows that were added are last in the order, so no earlier row has them as neighbours
            new = self.neighbours_of(np.arange(known[1], N))
            self._keep(tf.concat([self._earlier, new], axis=1))
        elif known != (G, N, count):
            self.refresh_neighbours()
        return self._earlier

    def _keep(self, neighbours: tf.Tensor) -> None:
        if self._earlier is not None and self._earlier.shape == neighbours.shape:
            self._earlier.assign(neighbours)
        else:
            self._earlier = tf.Variable(neighbours, trainable=False)


# ---
# Checks of a model of neighbours.


def warn_at_floor(noise_at_floor: np.ndarray) -> None:
    """Warn of intervals if an output's noise is at its floor, [P] bool."""
    if noise_at_floor.any():
        warn_user(
            "The noise variance is at its floor, the relative jitter or the likelihood's lower"
            " bound: intervals may be too narrow; add noise, or a rougher kernel."
        )


def refuse_spread_of_sites(spread_neighbours: int | None, likelihood: Likelihood | None) -> None:
    """Refuse a local spread where observations are not Gaussian; raises `DataError`."""
    if spread_neighbours is not None:
        raise DataError(
            f"spread_neighbours={spread_neighbours} is for Gaussian noise, and not for"
            f" {name_of(likelihood)}: leave it out. A noise that depends on the inputs is"
            ' build(X, Y, "heteroskedastic").'
        )


def check_neighbours_kernel(kernel: Kernel) -> None:
    """Refuse kernels that mix latent functions; raises `DataError`."""
    allowed = (SharedIndependent, SeparateIndependent)
    if isinstance(kernel, MultioutputKernel) and not isinstance(kernel, allowed):
        raise DataError(
            f"The kernel {type(kernel).__name__} mixes latent functions, and NNGP conditions each"
            " output on its own observations: use gpflow.kernels.SeparateIndependent([...]) with"
            " one kernel for each output, a product with gpflow.kernels.Coregion on a column of"
            " output numbers, or models.ODVGP with this kernel."
        )


def arrays_of(data: RegressionData, dtype: tf.DType) -> list[np.ndarray]:
    """X [N, D] and Y [N, P] as arrays; `DataError` if data are no pair."""
    return [as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY")]


def check_new(model: GPModel, X: np.ndarray, Y: np.ndarray, dims: int | None) -> None:
    """Refuse unusable rows X [N, D] and Y [N, P] for a model; raises `DataError`.

    :param dims: D of the data; None for the first ones.
    """
    dtype = float_type(model.kernel)
    check_shapes_of_data(X, Y, model.likelihood, model.num_latent_gps, dims, dtype)
    _check_observed(X, np.asarray(Y, float), whole=dims is None)
    seen = ~np.isnan(np.asarray(Y, float)).any(axis=1)
    check_densities(X[seen], Y[seen], model.likelihood)
    check_indices(X, "X", model.kernel, model.mean_function)
    if dims is not None:
        check_reach(model.kernel, X, model.data[0])


def _check_observed(X: np.ndarray, Y: np.ndarray, whole: bool) -> None:
    """Check values: X [N, D] finite, Y [N, P] finite or NaN for missing."""
    # whole: these are all the data, in which every output must be observed once.
    if len(X) == 0:
        raise DataError("X and Y have no rows; there is nothing to learn from.")
    check_finite_entries(X, "X")
    missing = np.isnan(Y)
    check_finite_entries(np.where(missing, 0.0, Y), "Y")
    if whole and missing.all(axis=0).any():
        column = int(np.flatnonzero(missing.all(axis=0))[0])
        raise DataError(
            f"Y[:, {column}] is NaN in all rows: nothing of this output is observed. Drop it:"
            f" np.delete(Y, {column}, axis=1)."
        )
    if missing.all(axis=1).any():
        empty = np.flatnonzero(missing.all(axis=1))
        raise DataError(
            f"Y[{empty[0]}] is NaN in all columns, like {len(empty)} rows in all: they say"
            " nothing. Drop them: keep = ~np.isnan(Y).all(axis=1); X, Y = X[keep], Y[keep]."
        )


def check_noise(likelihood: Gaussian, X: tf.Tensor, Y: tf.Tensor) -> None:
    """Refuse noise for other numbers of rows or outputs than in X [N, D] and Y [N, P]."""
    rows = noise_rows(likelihood)
    if rows not in (None, int(X.shape[0])):
        raise DataError(
            f"The likelihood has {rows} noise variances and the data {X.shape[0]} rows; pass one"
            " for each row, [N, 1], or a single number."
        )
    columns = noise_variances(likelihood, X[:1], tf.zeros([1], tf.int32)).shape[-1]
    if columns not in (1, Y.shape[1]):
        raise DataError(
            f"The likelihood has noise variances for {columns} outputs and Y has {Y.shape[1]}"
            " columns; pass one for each output, or a single number."
        )


def check_rows(rows: object, num_rows: int) -> np.ndarray:
    """Row numbers [B] of N rows of data as an array; `DataError` for others."""
    numbers = np.asarray(rows)
    fine = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    if not fine or (numbers.size and (numbers.min() < 0 or numbers.max() >= num_rows)):
        raise DataError(f"rows must be a vector of whole numbers from 0 to {num_rows - 1}.")
    return numbers.astype(np.int64)
