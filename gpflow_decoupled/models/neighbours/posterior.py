"""GPflow posteriors from neighbours."""

from __future__ import annotations

__all__ = ["NeighboursPosterior"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from ...compilation import Compiled
from ...covariances.blocks import xla_works
from ...covariances.latents import check_indices, mix_outputs
from ...covariances.neighbours import RowIndex, kept_index, row_index
from ...covariances.products import kernel_product
from ...errors import DataError, NumericalError, check_parameters, not_a_number
from ...inputs import as_inputs, float_type
from ...linalg.conjugate_gradients import map_rows
from ...posteriors import cache_type, near_inputs
from ...summaries import one_line, part_name
from .conditionals import (
    Factors,
    LocalSpread,
    Moments,
    Observations,
    joint_given_rows,
    new_given_neighbours,
    residuals_of,
    scaled,
)
from .groups import Group, noise_of_group, noise_variances, telling_groups
from .likelihood import of_inputs, with_copies

_ENTRIES = 4_000_000
"""Most entries of the covariance matrices of a block of inputs, 32 MB in double precision."""
_COMPILED = 3
"""Blocks from which on a graph pays: it takes 0.2 s to trace, and half the time of a block."""
_FUSED = 32
"""Blocks from which on XLA pays, which takes 0.3 s for the first ones."""
_JOINT_ROWS = 20_000
"""Most observations that inputs are conditioned on jointly: their covariance takes 3.2 GB."""


class NeighboursPosterior(AbstractPosterior):
    """Predictions (N7) from the nearest observations.

    :param data: X [N, D] and Y [N, P], with NaN for missing entries.
    :param num_neighbours: m, observations per prediction.
    :param mean_function: added to the mean; zero if not given.
    :param coefficients: returns a [N, P], for the means k(x, X) a of all rows at N D a prediction.
    :param owner: the model, whose index of rows is kept between posteriors.
    :param spread: scales the variances.
    :param factors: of mean and variance; ones if not given.
    :param precompute_cache: storage of residuals, noise and coefficients: "tensor", "variable", or
        "nocache".

    Cost for B inputs: B (m^3 / 3 + m^2 D) and the search. With `full_cov` inputs share the union of
    their neighbours, at the cube of its size.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Gaussian,
        data: tuple[tf.Tensor, tf.Tensor],
        num_neighbours: int,
        mean_function: MeanFunction | None = None,
        coefficients: Callable[[], tf.Tensor] | None = None,
        owner: tf.Module | None = None,
        *,
        spread: LocalSpread | None = None,
        factors: Factors | None = None,
        precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR,
    ) -> None:
        super().__init__(kernel, data[0], mean_function=mean_function)
        self.likelihood, self.num_neighbours = likelihood, num_neighbours
        self._Y, self._coefficients, self._spread = data[1], coefficients, spread
        self._factors = factors
        self._indexes: dict[object, RowIndex] = {}
        # indexes are kept with the model, since it makes a new posterior for each prediction
        self._owner = self if owner is None else owner
        self.update_cache(precompute_cache)

    def __repr__(self) -> str:
        kind = self._precompute_cache
        return one_line(
            self,
            part_name(self.kernel),
            N=int(self.X_data.shape[0]),
            num_neighbours=self.num_neighbours,
            precompute_cache=None if kind is None else kind.value,
        )

    def update_cache(self, precompute_cache: None | str | PrecomputeCacheType = None) -> None:
        """Compute cache and index again from the present Parameters.

        :param precompute_cache: the cache type from now on; by default the last one.
        """
        self._indexes = {}
        super().update_cache(
            None
            if precompute_cache is None and self._precompute_cache
            else cache_type(precompute_cache)
        )

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] from the cache; raises `DataError` for unusable
        inputs, and `NumericalError` for NaN, with the Parameters at fault.
        """
        found = super().predict_f(self._inputs(Xnew, full_cov), full_cov, full_output_cov)
        moments = scaled(self._factors, *found)
        if tf.executing_eagerly() and any(np.any(np.isnan(part)) for part in moments):
            raise not_a_number(self._at_fault, "posterior of f at Xnew")
        return moments

    def fused_predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        found = super().fused_predict_f(self._inputs(Xnew, full_cov), full_cov, full_output_cov)
        return scaled(self._factors, *found)

    def fused_with_spread(self, Xnew: InputData) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean and variance of f, and the spread [..., N, P], a factor of this variance and of the
        noise.

        Example::

            mean, variance, spread = posterior.fused_with_spread(Xnew)
        """
        X = self._inputs(Xnew, False)
        parts = self._by_group([part.value for part in self._precompute()], X, False)
        mean, variance, spread = (tf.concat(part, axis=-1) for part in zip(*parts))
        return self._add_mean_function(X, mean), variance, spread

    def _inputs(self, Xnew: InputData, full_cov: bool) -> tf.Tensor:
        X = as_inputs(Xnew, "Xnew", int(self.X_data.shape[1]), float_type(self.kernel))
        check_indices(X, "Xnew", self.kernel, self.mean_function)
        return near_inputs(X, self.kernel, self.mean_function, full_cov)

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        residuals = residuals_of(self.mean_function, self.X_data, self._Y)
        rows = tf.range(tf.shape(self.X_data)[0])
        noise = noise_variances(self.likelihood, self.X_data, rows)
        parts = [residuals, noise]
        if self._coefficients is not None:
            parts.append(self._coefficients())
        return tuple(PrecomputedValue(part, (False, False)) for part in parts)

    @inherit_check_shapes
    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        return self._predict(cache, Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        cache = tuple(part.value for part in self._precompute())
        return self._predict(cache, Xnew, full_cov, full_output_cov)

    def _predict(
        self,
        cache: Sequence[tf.Tensor],
        Xnew: tf.Tensor,
        full_cov: bool,
        full_output_cov: bool,
    ) -> MeanAndVariance:
        means, covs, _ = zip(*self._by_group(cache, Xnew, full_cov))
        mean, cov = tf.concat(means, axis=-1), tf.concat(covs, axis=-3 if full_cov else -1)
        return mix_outputs(self.kernel, mean, cov, full_cov, full_output_cov)

    def _by_group(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        residuals, noise, *coefficients = cache
        found = []
        groups = telling_groups(self.kernel, self.likelihood, self.X_data, self._Y)
        for group in with_copies(groups, self.X_data):
            values = tf.gather(residuals, group.columns, axis=1)
            rows = Observations(self.X_data, values, noise_of_group(noise, group))
            mine = of_inputs(group, rows)
            predict = self._joint if full_cov else self._marginals
            mean, cov, spread = predict(group, mine, Xnew)
            if coefficients:
                columns = tf.gather(coefficients[0], group.columns, axis=1)
                mean = _mean_of_rows(group.kernel, Xnew, self.X_data, columns)
            found.append((mean, cov, spread))
        return found

    def _marginals(
        self, group: Group, data: Observations, Xnew: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
        if Xnew.shape.num_elements() == 0:
            nothing = tf.zeros([*Xnew.shape[:-1], len(group.columns)], Xnew.dtype)
            return nothing, nothing, nothing
        index = self._index(group, data.X)
        count = min(self.num_neighbours, int(data.X.shape[0]))
        neighbours = index.nearest(flat, count)

        size = max(1, _ENTRIES // (int(data.noise.shape[1]) * (count + 1) ** 2))
        blocks = flat.shape[0] / size if tf.executing_eagerly() else 0.0
        fused = blocks >= _FUSED and xla_works()

        def of_block(inputs: tf.Tensor, near: tf.Tensor) -> Moments:
            rows = data.at(near)
            return new_given_neighbours(group.kernel, inputs, rows, near >= 0, self._spread, fused)

        run, kind = of_block, Xnew.dtype
        if blocks >= _COMPILED:
            run = Compiled(of_block)
        found = map_rows(run, (flat, neighbours), size, Moments(kind, kind, kind), fill=fused)
        self._check(tf.reduce_all([tf.reduce_all(tf.math.is_finite(part)) for part in found]))
        shape = tf.concat([tf.shape(Xnew)[:-1], [len(group.columns)]], axis=0)
        return tuple(tf.reshape(part, shape) for part in found)

    def _joint(
        self, group: Group, data: Observations, Xnew: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        mean, cov = self._joint_covariance(group, data, Xnew)
        if self._spread is None:
            return mean, cov, tf.ones_like(mean)
        # each input has the spread of its neighbours, with or without the others
        spread = self._marginals(group, data, Xnew)[2]
        root = tf.linalg.matrix_transpose(tf.sqrt(spread))
        return mean, cov * root[..., :, None] * root[..., None, :], spread

    def _joint_covariance(
        self, group: Group, data: Observations, Xnew: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        index = self._index(group, data.X)
        count = min(self.num_neighbours, int(data.X.shape[0]))

        def of_matrix(inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            near = tf.sort(tf.unique(tf.reshape(index.nearest(inputs, count), [-1]))[0])
            if tf.executing_eagerly() and near.shape[0] > _JOINT_ROWS:
                raise DataError(
                    f"full_cov=True conditions all inputs on the union of their neighbours, here"
                    f" {near.shape[0]} observations, at most {_JOINT_ROWS}: pass fewer inputs at a"
                    " time, or use full_cov=False."
                )
            rows, found = data.at(near), []
            shared = data.noise.shape[1] == 1
            splits = [rows.residuals] if shared else tf.split(rows.residuals, len(group.columns), 1)
            for k, values in enumerate(splits):
                some = rows._replace(residuals=values, noise=rows.noise[:, k : k + 1])
                mean, cov, ok = joint_given_rows(group.kernel, inputs, some)
                self._check(ok)
                found.append((mean, tf.repeat(cov[None], values.shape[1], axis=0)))
            means, covs = zip(*found)
            return tf.concat(means, axis=1), tf.concat(covs, axis=0)

        if Xnew.shape.rank == 2:
            return of_matrix(Xnew)
        leading, (N, D) = tf.shape(Xnew)[:-2], (tf.shape(Xnew)[-2], Xnew.shape[-1])
        mean, cov = map_rows(
            lambda one: tuple(part[None] for part in of_matrix(one[0])),
            (tf.reshape(Xnew, tf.stack([-1, N, D])),),
            1,
            (Xnew.dtype, Xnew.dtype),
        )
        mean = tf.reshape(mean, tf.concat([leading, [N, len(group.columns)]], axis=0))
        return mean, tf.reshape(cov, tf.concat([leading, [len(group.columns), N, N]], axis=0))

    def _index(self, group: Group, X: tf.Tensor) -> RowIndex:
        """The index of the group's rows; kept between calls outside of a `tf.function`."""
        if not tf.executing_eagerly():
            return row_index(group.kernel, X)
        key = id(group.kernel), group.columns if group.rows is not None else None
        kept = self._indexes  # `update_cache` of another thread may replace them
        if (index := kept.get(key)) is None:
            if group.rows is None:
                rows = None if group.copies is None else group.copies.first
                index = kept_index(self._owner, group.kernel, self.X_data, rows)
            else:
                index = row_index(group.kernel, X)
            kept[key] = index
        return index

    @property
    def _at_fault(self) -> tf.Module:
        """The parts whose Parameters may be wrong."""
        return self.kernel if self._owner is self else self._owner

    def _check(self, ok: tf.Tensor) -> None:
        if tf.executing_eagerly() and not bool(ok):
            check_parameters(self._at_fault, "posterior of f at Xnew")
            raise NumericalError(
                "The covariance of an input's neighbours is not positive definite. Likely fixes:"
                " double precision (gpflow.config.set_default_float(np.float64)), or a larger"
                " noise variance.",
                matrix="k(neighbours, neighbours)",
            )


def _mean_of_rows(kernel: Kernel, Xnew: tf.Tensor, X: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    found = kernel_product(kernel, tf.reshape(Xnew, [-1, Xnew.shape[-1]]), X, a)
    return tf.reshape(found, tf.concat([tf.shape(Xnew)[:-1], [a.shape[1]]], axis=0))
