"""GPflow posterior objects that cache the state of a basis.

The cache is the state itself, so that cached and uncached predictions are the same computation.
"""

from __future__ import annotations

__all__ = ["BasisPosterior", "cache_type", "mix_outputs"]


import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.conditionals.util import mix_latent_gp
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from .bases.base import Basis
from .errors import UnknownOptionError


def cache_type(value: None | str | PrecomputeCacheType) -> PrecomputeCacheType:
    """GPflow's cache type from its name; None stands for "nocache". Raises `UnknownOptionError` for anything else."""
    if value is None:
        return PrecomputeCacheType.NOCACHE
    try:
        return PrecomputeCacheType(value.lower() if isinstance(value, str) else value)
    except ValueError:
        names = ", ".join(repr(kind.value) for kind in PrecomputeCacheType)
        raise UnknownOptionError(f"precompute_cache={value!r} is not known; use one of {names}.") from None


def mix_outputs(
    kernel: Kernel, mean: tf.Tensor, cov: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
) -> MeanAndVariance:
    """From L latent functions to P outputs: mean [..., N, L] -> [..., N, P], with the covariances of GPflow's
    `predict_f`.

    Only linear coregionalisation mixes: mean W^T, cov (W * W)^T, the forward side of (D51).
    """
    if isinstance(kernel, LinearCoregionalization):
        leading = tf.transpose(cov, _latents_first(cov)) if full_cov else cov  # GPflow's mixing wants [L, ..., N, N]
        return mix_latent_gp(kernel.W, mean, leading, full_cov, full_output_cov)
    if not full_output_cov:
        return mean, cov
    if not full_cov:
        return mean, tf.linalg.diag(cov)  # [..., N, P, P]
    rank = cov.shape.rank
    cov = tf.linalg.diag(tf.transpose(cov, [*range(rank - 3), rank - 2, rank - 1, rank - 3]))  # [..., N, N, P, P]
    return mean, tf.transpose(cov, [*range(rank - 3), rank - 3, rank - 1, rank - 2, rank])


def _latents_first(cov: tf.Tensor) -> list[int]:
    rank = cov.shape.rank
    return [rank - 3, *range(rank - 3), rank - 2, rank - 1]


class BasisPosterior(AbstractPosterior):
    """The posterior of a basis: GPflow's `predict_f`, from cached factorisations.

    :param basis: what q(f) is. :param precompute_cache: how its state is kept, see `cache_type`.

    Cost at N points, cached: N M^2 for the variances. Xnew may have batch dimensions, cached or not.
    """

    def __init__(
        self,
        kernel: Kernel,
        basis: Basis,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR,
    ) -> None:
        super().__init__(kernel, None, mean_function=mean_function)
        self.basis = basis
        self.update_cache(precompute_cache)

    def update_cache(self, precompute_cache: None | str | PrecomputeCacheType = None) -> None:
        """Recompute the cache from the Parameters as they are now; by default with the kind used last."""
        super().update_cache(
            None if precompute_cache is None and self._precompute_cache else cache_type(precompute_cache)
        )

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        state = self.basis.factor(self.kernel, with_kl=False)
        tensors = state[: state._fields.index("ok") + 1]  # what follows is for gradients and the divergence
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
        return self._predict(self.basis.factor(self.kernel, with_kl=False), Xnew, full_cov, full_output_cov)

    def _predict(self, state: tuple, Xnew: TensorType, full_cov: bool, full_output_cov: bool) -> MeanAndVariance:
        mean, cov = self.basis.mean_and_cov(state, self.kernel, Xnew, full_cov=full_cov)
        return mix_outputs(self.kernel, mean, cov, full_cov, full_output_cov)
