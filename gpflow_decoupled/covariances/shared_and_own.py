"""Coregionalisation with a latent function of each output alone."""

from __future__ import annotations

__all__ = ["SharedAndOwn"]

from collections.abc import Sequence

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import Combination, Kernel, LinearCoregionalization


class SharedAndOwn(LinearCoregionalization):
    """Outputs f_p = sum_r W_pr g_r + h_p, of R shared and P own latents (Nguyen & Bonilla 2014).

    Without h, W W^T of R < P latents is singular.

    :param kernels: of g_1, ..., g_R, h_1, ..., h_P; kernels of g have a fixed variance.
    :param shared: mixture of the shared latents, [P, R].

    Example::

        kernel = SharedAndOwn([Matern52(), Matern52(), Matern52()], np.array([[1.0], [-1.0]]))
    """

    def __init__(
        self, kernels: Sequence[Kernel], shared: TensorType, name: str | None = None
    ) -> None:
        Combination.__init__(self, kernels=kernels, name=name)
        self.shared = Parameter(shared)

    @property
    def W(self) -> tf.Tensor:
        """The mixture of all latents, [P, R + P]: the shared part beside the identity."""
        shared = tf.convert_to_tensor(self.shared)
        return tf.concat([shared, tf.eye(shared.shape[0], dtype=shared.dtype)], axis=1)
