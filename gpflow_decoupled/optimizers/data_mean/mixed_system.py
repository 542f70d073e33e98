"""Mixed latents, f = g W^T."""

# The sites of mixed latents share observations, so that a solve for each latent in turn moves all
# others' targets. The observations have one system instead, for c [N, P] and columns w_l of W [P,
# L],
#
#   sum_l K_l c w_l w_l^T + s2 c = y,    a_l = c w_l,
#
# with the coefficients a_l of each latent. Q is made of B, the features A_l of all latents times
# w_l, and I + B^T B / s2 couples the latents' points: certificate and preconditioner know the
# mixing.

from __future__ import annotations

__all__ = ["MixedSystem"]

from dataclasses import dataclass, field
from typing import cast

import tensorflow as tf

from ...bases.parts.data_mean import DataMean
from ...covariances.products import gram_product
from ...errors import NumericalError
from ...likelihoods.parameters import single_noise_variance
from ...linalg.cholesky import cholesky
from ...models import BasisGP
from ...replicas import Group
from .row_features import RowFeatures
from .system import MeanSystem, Progress


@dataclass
class MixedSystem(MeanSystem):
    """The system of c, with one noise variance; arguments as `MeanSystem`, columns are outputs.

    :param weights: 1 / s2 in all entries [N, P].
    :param target: y, less the mean function [N, P].
    :param mixing: W [P, L].

    Cost: N (L R)^2 for R points, memory N R G.
    """

    mixing: tf.Tensor = field(kw_only=True)

    def __post_init__(self) -> None:
        L = int(self.mixing.shape[1])
        product = tf.add_n([_gram(block, L) for block in self.projections.blocks])
        rows = product.shape[0] // L
        inner = tf.matmul(self.mixing, self.mixing, transpose_a=True)  # W^T W
        product *= self.weights[0, 0] * tf.tile(inner, [rows, rows])
        self.chol, ok = cholesky(tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0))
        if not bool(ok):
            raise NumericalError(
                "I + B^T B / s2 could not be factorised: the kernel or the noise variance is not"
                " finite, or far too small.",
                "I + B^T B / s2",
            )

    @classmethod
    def of(
        cls,
        model: BasisGP,
        data: tuple[tf.Tensor, tf.Tensor],
        mean: DataMean,
        projections: RowFeatures,
        group: Group,
    ) -> MixedSystem:
        """The system of a model with a `LinearCoregionalization` and one noise variance."""
        X, Y = data
        noise = cast(tf.Tensor, single_noise_variance(model.likelihood))
        y = Y - model.mean_function(X)
        mixing = tf.convert_to_tensor(model.kernel.W)
        weights = tf.fill(tf.shape(y), 1.0 / noise)
        return cls(model.kernel, mean, projections, weights, y, group, mixing=mixing)

    def start(self, a: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """c [N, P] from coefficients a and means [N, L] of the latents, and the sum of K products.

        The solution at the best mean. One product; none for a = 0.
        """
        if not bool(tf.reduce_any(a != 0.0)):
            return tf.zeros_like(self.target), tf.zeros_like(self.target)
        c = self.weights * (self.target - self.outputs(mean))
        return c, self.product(c, None) - c / self.weights

    def product(
        self, a: tf.Tensor, dtype: tf.DType | None, progress: Progress | None = None
    ) -> tf.Tensor:
        """The left-hand side [N, P] for c [N, P]; L N^2 D."""
        of_latents = gram_product(
            self.kernel,
            self.mean.points,
            None,
            self.latents(a),
            dtype=dtype,
            progress=progress,
            group=self.group,
        )
        return self.outputs(of_latents) + a / self.weights

    def precondition(self, residual: tf.Tensor) -> tf.Tensor:
        half = self._half(residual)
        back = tf.linalg.triangular_solve(self.chol, half, adjoint=True)
        return self.weights * (residual - self._features(back))

    def inner(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(left * right)

    def gap(self, residual: tf.Tensor) -> float:
        t = self._best(residual)
        rest = residual - self._features(t)
        twice = tf.reduce_sum(self.weights * tf.square(rest)) + tf.reduce_sum(tf.square(t))
        return self.group.first(0.5 * float(twice))

    def inducing_mean(self, a: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        known = self.projections.times(self.latents(a), self.size)
        return known + tf.reshape(self._best(residual), known.shape)

    def latents(self, outputs: tf.Tensor) -> tf.Tensor:
        """c W [N, L] for c [N, P]."""
        return tf.matmul(outputs, self.mixing)

    def outputs(self, latents: tf.Tensor) -> tf.Tensor:
        """g W^T [N, P] for g [N, L]."""
        return tf.matmul(latents, self.mixing, transpose_b=True)

    def _latent_weights(self) -> tf.Tensor:
        size = tf.reduce_sum(tf.square(self.mixing))
        return size * tf.repeat(self.weights[:, :1], self.mixing.shape[1], axis=1)

    def _best(self, residual: tf.Tensor) -> tf.Tensor:
        count = self.size * self.mixing.shape[1]
        half = self._half(residual)[:count]
        return tf.linalg.triangular_solve(self.chol[:count, :count], half, adjoint=True)

    def _half(self, residual: tf.Tensor) -> tf.Tensor:
        pulled = self.projections.times(self.latents(self.weights * residual))
        return tf.linalg.triangular_solve(self.chol, tf.reshape(pulled, [-1, 1]))

    def _features(self, columns: tf.Tensor) -> tf.Tensor:
        of_latents = tf.reshape(columns, [-1, self.mixing.shape[1]])
        return self.outputs(self.projections.transposed(of_latents))


def _gram(block: tf.Tensor, latents: int) -> tf.Tensor:
    rows, count = block.shape[1:]
    of_all = tf.broadcast_to(block, [latents, rows, count])
    stacked = tf.reshape(tf.transpose(of_all, [1, 0, 2]), [rows * latents, count])
    return tf.matmul(stacked, stacked, transpose_b=True)
