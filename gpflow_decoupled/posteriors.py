"""GPflow posteriors that cache the state of a basis."""

from __future__ import annotations

__all__ = ["BasisPosterior", "cache_type", "near_inputs"]

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.functions import Constant, MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from .bases.base import Basis
from .covariances.latents import check_indices, mix_outputs
from .covariances.stationary import within_reach
from .errors import UnknownOptionError, not_a_number
from .inputs import as_inputs, float_type
from .summaries import one_line, part_name, short_repr, short_table


def cache_type(value: None | str | PrecomputeCacheType) -> PrecomputeCacheType:
    """Return the GPflow cache type with this name.

    :param value: a cache type or its name; None is "nocache".
    """
    if value is None:
        return PrecomputeCacheType.NOCACHE
    try:
        return PrecomputeCacheType(value.lower() if isinstance(value, str) else value)
    except ValueError:
        names = ", ".join(repr(kind.value) for kind in PrecomputeCacheType)
        raise UnknownOptionError(
            f"precompute_cache={short_repr(value)} is not known; use one of {names}."
        ) from None


def near_inputs(
    X: tf.Tensor, kernel: Kernel, mean_function: MeanFunction | None, full_cov: bool
) -> tf.Tensor:
    """Inputs X [..., N, D], those too far for the kernel's distances moved: see `within_reach`.

    :param mean_function: unless constant, the inputs stay.
    :param full_cov: inputs stay, whose distances from each other count too.
    """
    constant = mean_function is None or isinstance(mean_function, (Constant, Zero))
    return X if full_cov or not constant else within_reach(kernel, X)


class BasisPosterior(AbstractPosterior):
    """The posterior of a model with a basis: GPflow's `predict_f` from cached factorisations.

    Predictions at N points cost N M^2 for the variances. Xnew may have batch dimensions.

    :param mean_function: added to the mean of the outputs; zero if not given.
    :param precompute_cache: "tensor", "variable", or "nocache" to factorise at every prediction.
    :param num_dims: D, the required number of columns; None takes any.
    """

    def __init__(
        self,
        kernel: Kernel,
        basis: Basis,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR,
        num_dims: int | None = None,
    ) -> None:
        super().__init__(kernel, None, mean_function=mean_function)
        self.basis, self.num_dims = basis, num_dims
        self.update_cache(precompute_cache)

    def __repr__(self) -> str:
        kind = self._precompute_cache
        return one_line(
            self,
            part_name(self.kernel),
            **self.basis.sizes,
            precompute_cache=None if kind is None else kind.value,
        )

    def _repr_html_(self) -> str:
        return short_table(super()._repr_html_())

    def update_cache(self, precompute_cache: None | str | PrecomputeCacheType = None) -> None:
        """Recompute the cache from the present Parameters.

        :param precompute_cache: the cache type from now on; by default the last one.
        """
        super().update_cache(
            None
            if precompute_cache is None and self._precompute_cache
            else cache_type(precompute_cache)
        )

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] from the cache."""
        moments = super().predict_f(
            self._inputs(Xnew, full_cov), full_cov=full_cov, full_output_cov=full_output_cov
        )
        if tf.executing_eagerly() and any(np.any(np.isnan(part)) for part in moments):
            raise not_a_number(self, "posterior of f at Xnew")
        return moments

    def fused_predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] from new factorisations, without the cache."""
        return super().fused_predict_f(
            self._inputs(Xnew, full_cov), full_cov=full_cov, full_output_cov=full_output_cov
        )

    def _inputs(self, Xnew: InputData, full_cov: bool) -> tf.Tensor:
        X = as_inputs(Xnew, "Xnew", self.num_dims, float_type(self.kernel))
        check_indices(X, "Xnew", self.kernel, self.mean_function)
        return near_inputs(X, self.kernel, self.mean_function, full_cov)

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        state = self.basis.factor(self.kernel, with_kl=False)
        # the later fields serve gradients and the divergence
        tensors = state[: state._fields.index("ok") + 1]
        return tuple(PrecomputedValue(value, (False,) * value.shape.rank) for value in tensors)

    @inherit_check_shapes
    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        return self._predict(self.basis.state_type(*cache), Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self._predict(
            self.basis.factor(self.kernel, with_kl=False), Xnew, full_cov, full_output_cov
        )

    def _predict(
        self, state: tuple[tf.Tensor, ...], Xnew: TensorType, full_cov: bool, full_output_cov: bool
    ) -> MeanAndVariance:
        mean, cov = self.basis.mean_and_cov(state, self.kernel, Xnew, full_cov=full_cov)
        return mix_outputs(self.kernel, mean, cov, full_cov, full_output_cov)
