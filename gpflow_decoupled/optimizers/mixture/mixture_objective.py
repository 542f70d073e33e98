"""The bound of a mixture over one vector."""

# With the best Gaussian N(b, C C^T), components have m_j = b + C m~_j and L_j = C L~_j. For sites
# g_n(y_n), y_n = phi_n^T w + beta_n + noise of variance tau_n^2, the expectation (A33) is exact:
#
#   E g_n(y_n) = sum_j pi_j E g_n(y), y ~ N(phi_n^T m_j + beta_n, |L_j^T phi_n|^2 + tau_n^2)

from __future__ import annotations

__all__ = ["Mixture", "MixtureObjective"]

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...compilation import Compiled
from ...expectations.site_integrals import Integration, SiteGroup
from ...probability import tfp
from ..affine_independent.gaussian_kl import expected_sites
from .entropy import ENTROPIES


class Mixture(NamedTuple):
    """A mixture of Gaussians."""

    log_weights: tf.Tensor
    """log pi [J], normalised."""
    means: tf.Tensor
    """m [J, D]."""
    roots: tf.Tensor
    """Lower triangular roots of S, [J, D, D]."""


class MixtureObjective:
    """The lower bound of log Z and its gradient in a vector of logits, m~_j and L~_j (log
    diagonal).

    :param groups: the sites, with features [N, D].
    :param gaussian: [D], 1 for a weight with a Gaussian prior, 0 if its prior is a site.
    :param constant: added to the bound, in nats.
    :param frame: mean b [D] and lower triangular root C [D, D] of the best Gaussian.
    """

    def __init__(
        self,
        groups: list[SiteGroup],
        gaussian: npt.ArrayLike,
        constant: float,
        integration: Integration,
        frame: tuple[np.ndarray, np.ndarray],
        components: int,
        entropy: str,
    ) -> None:
        self.groups, self.constant, self.integration = (
            groups,
            constant,
            integration._replace(route="auto"),
        )
        self.dtype = groups[0].features.dtype
        self.gaussian = tf.constant(gaussian, self.dtype)
        self.b, self.C = (tf.constant(part, self.dtype) for part in frame)
        self.components, self.size = components, len(frame[0])
        self.entropy = ENTROPIES[entropy]
        self._graph = Compiled(self._value_and_gradient)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._graph(tf.constant(x, self.dtype))
        return float(value), gradient.numpy().astype(np.float64)

    def start(self, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The vector [n] of equal weights, means m~ [J, D] and L~_j = scale_j I, scales [J]."""
        diagonal = np.log(scales)[:, None, None] * np.eye(self.size)
        lower = tfp.math.fill_triangular_inverse(diagonal).numpy()
        return np.concatenate([np.zeros(len(scales)), means.ravel(), lower.ravel()]).astype(
            np.float64
        )

    def mixture(self, x: npt.ArrayLike | tf.Tensor) -> Mixture:
        """The mixture of a vector [n], in whitened coordinates."""
        log_weights, means, roots = self._parts(tf.cast(tf.convert_to_tensor(x), self.dtype))
        return Mixture(
            log_weights,
            self.b + tf.matmul(means, self.C, transpose_b=True),
            tf.matmul(self.C[None], roots),
        )

    def _parts(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        J, D = self.components, self.size
        logits, means, lower = tf.split(x, [J, J * D, J * D * (D + 1) // 2])
        roots = tfp.math.fill_triangular(tf.reshape(lower, [J, -1]))
        roots = tf.linalg.set_diag(roots, tf.exp(tf.linalg.diag_part(roots)))
        return tf.nn.log_softmax(logits), tf.reshape(means, [J, D]), roots

    def _value_and_gradient(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = self._bound(x)
        return value, tape.gradient(value, x)

    def _bound(self, x: tf.Tensor) -> tf.Tensor:
        mixture = self.mixture(x)
        # 1) the Gaussian part of the prior
        moment = tf.square(mixture.means) + tf.reduce_sum(tf.square(mixture.roots), axis=2)
        each = -0.5 * tf.linalg.matvec(moment + math.log(2.0 * math.pi), self.gaussian)
        # 2) the sites, component by component
        sites = [
            tf.add_n([self._expected(group, m, root) for group in self.groups])
            for m, root in zip(tf.unstack(mixture.means), tf.unstack(mixture.roots))
        ]
        energy = tf.reduce_sum(tf.exp(mixture.log_weights) * (each + tf.stack(sites)))
        # 3) the entropy, in the coordinates of the Gaussian, and the volume between the two
        volume = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.C))))
        return energy + self.constant + self.entropy(*self._parts(x)) + volume

    def _expected(self, group: SiteGroup, m: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
        mean = group.offset + tf.linalg.matvec(group.features, m)
        variance = tf.reduce_sum(tf.square(tf.matmul(group.features, root)), axis=1)
        variance = variance if group.noise is None else variance + group.noise
        return tf.reduce_sum(expected_sites(mean, variance, group, self.integration))  # (A33)
