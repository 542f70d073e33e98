"""The affine-independent basis: inducing variables, or weights, are an affine map of independent non-Gaussian variables.

Challis & Barber 2012. In whitened coordinates, where the prior of w is N(0, I), with standardised base variables
v_d ~ q(. | theta_d) of mean 0, variance 1 and entropy H_d (section 2.1 of the derivations):

    w = A v + b,   E w = b,   cov w = A A^T                                                            (A1)
    f(x) = m_0(x) + phi(x)^T w + r,   phi(x) = L^-1 k(Z, x),   r ~ N(0, k(x, x) - phi(x)^T phi(x))
    KL = -log|det A| - sum_d H_d + 1/2 [D log 2 pi + |b|^2 + |A|_F^2]                                  (A2)

| symbol | code | shape |
|---|---|---|
| A, b, theta of the first k of v | `matrix()`, `b`, `theta` | [D, D], [D], [k, P] |
| alpha = phi A of these k, beta = phi b | `projections` | [N, k], [N] |
"""

from __future__ import annotations

__all__ = ["AffineIndependentBasis", "AffineState"]

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_data, gram_to_factor
from ..distributions import Base, base_variable
from ..errors import DataError
from ..expectations.projections import Projections
from ..expectations.site_integrals import SiteGroup
from ..inducing.variables import as_inducing, count_points
from ..linalg.gaussians import apply_per_latent
from ..linalg.whitening import whiten, whitener
from .affine_map import AffineMap, affine_map
from .base import Basis, Features


class AffineState(NamedTuple):
    """chol(K) [1, D, D], b [D, 1] and A [1, D, D] of an `AffineIndependentBasis`."""

    chol: tf.Tensor
    mean: tf.Tensor
    root: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    divergence: tf.Tensor | None = None
    """(A2), a scalar"""


class AffineIndependentBasis(Basis):
    """q(f) through w = A v + b over whitened inducing values, (A1): any base, a matrix A, one latent function.

    :param inducing: points [D, columns of X], or any GPflow inducing variable, `inducing.Weights` of a linear model among
        them.
    :param base: the name of one of `distributions.BASES`, a `distributions.Base`, or a scalar TFP distribution.
    :param structure: of A, "full", "lower", "lu" or "low_rank". :param rank: k of "low_rank".
    :param non_normal: k, how many of the v are of the base, the first; the others are normal. All D if not given. With
        structure "full" alone, which lets the ascent choose the k directions; a site then costs k T instead of D T.
    :param A: [D, D], not singular; the identity if not given. :param b: [D]; zeros if not given.
    :param theta: shapes [k, P]; the base's default if not given.
    :param gaussian: [D], False for coordinates that have no Gaussian prior: (A2) leaves them to sites of their own.
    :param distinct: False lets an inducing variable have points twice, as data may.

    Raises `DataError` for arrays of a wrong shape or not finite, a singular A and shapes without finite variance;
    `UnknownOptionError` for another base or structure. Cost: D^3, and N D^2 for N inputs.
    """

    state_type = AffineState
    num_latent_gps = 1

    def __init__(
        self,
        inducing: Any,
        base: Any = "skew_normal",
        *,
        structure: str = "full",
        rank: int = 5,
        non_normal: int | None = None,
        A: Any | None = None,
        b: Any | None = None,
        theta: Any | None = None,
        gaussian: Any | None = None,
        distinct: bool = True,
    ) -> None:
        super().__init__()
        self.inducing = as_inducing(inducing, "inducing") if distinct else inducing
        self.size = D = count_points(self.inducing)
        self.map: AffineMap = affine_map(np.eye(D) if A is None else A, structure, rank)
        if tuple(self.map.matrix().shape) != (D, D):
            raise DataError(f"A has shape {tuple(self.map.matrix().shape)} and there are {D} inducing values.")
        b = np.zeros(D) if b is None else np.asarray(b, default_float())
        if b.shape != (D,) or not np.all(np.isfinite(b)):
            raise DataError(f"b has shape {b.shape}; it must be [D] = [{D}], finite numbers.")
        self.b = Parameter(b, dtype=default_float())
        self.non_normal = _checked_count(non_normal, D, structure)
        self._gaussian = np.ones(D) if gaussian is None else np.asarray(gaussian, default_float())
        self.assign_base(base, theta)

    @property
    def structure(self) -> str:
        """Of A."""
        return self.map.structure

    @property
    def gaussian(self) -> tf.Tensor:
        """[D], 1 where a coordinate has a Gaussian prior and 0 where its prior is a site."""
        return tf.constant(self._gaussian, default_float())

    def assign_base(self, base: Any, theta: Any | None = None) -> None:
        """Another base with shapes theta [k, P], by default the base's own; A and b stay, and so do mean and covariance."""
        found = base_variable(base)
        dtype, shape = default_float(), (self.non_normal, found.num_shapes)
        value = found.start(shape[0], dtype) if theta is None else tf.convert_to_tensor(theta, dtype)
        if tuple(value.shape) != shape:
            raise DataError(
                f"theta has shape {tuple(value.shape)}; it must be [k, P] = {list(shape)}, k of D = {self.size}."
            )
        found.check(value)
        self.base: Base = found
        self.theta = Parameter(value, transform=found.bijector(dtype), dtype=dtype, trainable=found.num_shapes > 0)

    def matrix(self) -> tf.Tensor:
        """A [D, D]."""
        return self.map.matrix()

    def entropy(self) -> tf.Tensor:
        """The entropy of q(w), whitened, in nats: a scalar; (A1)."""
        normal = 0.5 * math.log(2.0 * math.pi * math.e) * (self.size - self.non_normal)
        return self.map.log_det() + tf.reduce_sum(self.base.entropy(self.shapes)) + normal

    def sample(self, n: int, seed: Any = None) -> tf.Tensor:
        """Draws of w, whitened, [n, D]."""
        first, second = tf.unstack(tfp.random.split_seed(seed, n=2, salt="AffineIndependentBasis"))
        v = self.base.sample(n, self.shapes, seed=first)
        normal = tf.random.stateless_normal([n, self.size - self.non_normal], second, dtype=v.dtype)
        return tf.linalg.matvec(self.matrix(), tf.concat([v, normal], axis=1)) + self.b  # (A1)

    @property
    def shapes(self) -> tf.Tensor:
        """The shapes theta [k, P]."""
        return tf.convert_to_tensor(self.theta)

    def divergence(self) -> tf.Tensor:
        """KL[q(w) || p(w)] in nats, a scalar: (A2); without the prior of coordinates that are not `gaussian`."""
        moment = tf.square(self.b) + tf.reduce_sum(tf.square(self.matrix()), axis=1)
        return 0.5 * tf.reduce_sum(self.gaussian * (moment + math.log(2.0 * math.pi))) - self.entropy()  # (A2)

    def projections(self, group: SiteGroup) -> Projections:
        """y_n of a group of sites as sums of base variables: alpha [N, k], beta [N], and as noise what is normal."""
        beta, k = group.offset + tf.linalg.matvec(group.features, self.b), self.non_normal
        alpha, noise = self.map.project(group.features), group.noise
        if k < self.size:
            normal = tf.reduce_sum(tf.square(alpha[:, k:]), axis=1)
            alpha, noise = alpha[:, :k], normal if noise is None else noise + normal
        return Projections(alpha, beta, self.shapes, noise)

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """The prior covariance of the inducing values, with its jitter."""
        return {"K": gram_to_factor(kernel, self.inducing)}

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> AffineState:
        """chol(K), and A and b; D^3."""
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.inducing))
        divergence = self.divergence() if with_kl else None
        return AffineState(chol, tf.convert_to_tensor(self.b)[:, None], self.matrix()[None], ok, tangent, divergence)

    def whitened_features(self, state: AffineState, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
        """phi(X) [N, D] = (L^-1 k(Z, X))^T for X [N, columns]; N D^2."""
        return tf.transpose(whiten(state.chol, state.tangent, gram_to_data(kernel, self.inducing, X))[0])

    def features(self, state: AffineState, kernel: Kernel, X: tf.Tensor) -> Features:
        """The moments of (A1) at X [N, columns]; N D^2."""
        phi = tf.transpose(self.whitened_features(state, kernel, X))[None]
        mean = apply_per_latent(phi, state.mean, adjoint=True)
        return Features(mean, (phi,), (tf.matmul(state.root, phi, transpose_a=True),))

    def prior_kl(self, state: AffineState) -> tf.Tensor:
        """(A2) of a state, in nats. Raises `ValueError` for one that was made for predictions."""
        if state.divergence is None:
            raise ValueError(
                "This state was made for predictions (with_kl=False); call factor(kernel) for the divergence."
            )
        return state.divergence


def _checked_count(non_normal: int | None, D: int, structure: str) -> int:
    """K. Raises `DataError` unless it is from 1 to D, or with another structure than "full"."""
    if non_normal is None:
        return D
    if not isinstance(non_normal, int | np.integer) or not 1 <= non_normal <= D:
        raise DataError(f"non_normal={non_normal!r}: it must be a whole number from 1 to D = {D}.")
    if structure != "full":
        raise DataError(
            f"non_normal with structure='{structure}': only structure='full' leaves the choice of the directions free."
        )
    return int(non_normal)
