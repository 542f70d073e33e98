"""The affine-independent basis."""

from __future__ import annotations

__all__ = ["AffineIndependentBasis", "AffineState", "FullMap", "LUMap", "STRUCTURES"]

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import triangular

from ..covariances.latents import gram_to_data, gram_to_factor
from ..distributions import Base, BaseLike, base_variable
from ..distributions.densities import Seed
from ..errors import DataError, check_option
from ..expectations.fourier import SiteGroup
from ..expectations.projections import Projections
from ..inducing.variables import as_inducing, count_points
from ..inducing.weights import Weights
from ..linalg.whitening import apply_per_latent, whiten, whitener
from ..probability import tfp
from ..summaries import short_repr
from .base import Basis, Features

STRUCTURES = ("full", "lu")
"""Of the matrix A: any matrix, or L U with L lower and U unit upper triangular (Challis & Barber
2012), as general up to the order of the v_d. D^2 numbers each."""
_LEAST_RATIO = 1e-12
"""Ratio of extreme singular values below which a matrix counts as singular."""


class FullMap(Module):
    """An unconstrained matrix A [D, D] of w = A v + b."""

    structure = "full"

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = Parameter(A, dtype=default_float())

    def matrix(self) -> tf.Tensor:
        """The matrix A [D, D]."""
        return tf.convert_to_tensor(self.A)

    def log_det(self) -> tf.Tensor:
        """log|det A|, a scalar; minus infinity or NaN for a singular A."""
        return tf.linalg.slogdet(self.A).log_abs_determinant

    def assign_matrix(self, A: np.ndarray) -> None:
        """Set the matrix to A [D, D], with structure "lu" up to the order of its columns."""
        self.A.assign(A)


class LUMap(FullMap):
    """A = L U [D, D], as in Challis & Barber 2012."""

    structure = "lu"

    def __init__(self, A: np.ndarray) -> None:
        Module.__init__(self)
        L, U = _columns_pivoted(A)
        self.L = Parameter(L, transform=triangular(), dtype=default_float())
        self.U_transposed = Parameter(U.T, transform=triangular(), dtype=default_float())

    def matrix(self) -> tf.Tensor:
        U = tf.transpose(self.U_transposed)
        return tf.matmul(self.L, tf.linalg.set_diag(U, tf.ones_like(tf.linalg.diag_part(U))))

    def log_det(self) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.L))))

    def assign_matrix(self, A: np.ndarray) -> None:
        L, U = _columns_pivoted(A)
        self.L.assign(L)
        self.U_transposed.assign(U.T)


def _columns_pivoted(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # A = root^T rotation^T; pivots of a rotation do not depend on the scale of the rows of A
    rotation, root = np.linalg.qr(A.T)
    _, lower, upper = scipy.linalg.lu(rotation)
    return root.T @ upper.T, lower.T.copy()


# ---


# With whitened w, L = chol k(Z, Z), and independent v_d of entropy H_d, (A1), (A2)
#
#   w = A v + b,   E w = b,   cov w = A A^T
#   f(x) = m_0(x) + phi(x)^T w + r,   phi(x) = L^-1 k(Z, x),   r ~ N(0, k(x, x) - |phi(x)|^2)
#   KL[q(w) || p(w)] = -log|det A| - sum_d H_d + 1/2 [D log 2 pi + |b|^2 + |A|_F^2]
#
# | symbol | code | shape |
# |---|---|---|
# | A, b | `matrix()`, `b` | [D, D], [D] |
# | theta, P shapes of each of the first k of v; the others are normal | `theta` | [k, P] |
# | f(x) = alpha^T v + beta + noise, alpha = phi A | `projections` | [N, k], [N] |


_ALL, _FEW = 100, 20
"""Most v_d that all have the base distribution, and how many have it where there are more: gains of
rotated directions fall fast, and seconds are proportional to their number."""


class AffineState(NamedTuple):
    """The state of an `AffineIndependentBasis`."""

    chol: tf.Tensor
    """Cholesky factor of K, [1, D, D]."""
    mean: tf.Tensor
    """b [D, 1]."""
    root: tf.Tensor
    """A [1, D, D]."""
    ok: tf.Tensor
    """The factorisation succeeded, a scalar."""
    tangent: tf.Tensor | None = None
    """For a well-conditioned gradient of the whitened features, see `linalg.whitening`."""
    divergence: tf.Tensor | None = None
    """The KL in nats, a scalar; None in a state for predictions."""


class AffineIndependentBasis(Basis):
    """q(f) through w = A v + b, w whitened, for one latent (Challis & Barber 2012).

    Cost: D^3, and N D^2 for N inputs.

    :param inducing: points [D, columns of X], or a GPflow inducing variable.
    :param base: base distribution of the v_d: a name of `distributions.BASES`, a
        `distributions.Base` (`BlockBase` for several), or a scalar TFP distribution.
    :param structure: of A: "full", or "lu", L U with L lower and U unit upper triangular.
    :param non_normal: k, the number of v_d with the base distribution, for "full"; by default D,
        and 20 for more than 100 points. A site costs k T frequencies, not D T.
    :param A: [D, D], not singular; by default the identity.
    :param b: [D]; by default zeros.
    :param theta: shapes [k, P]; by default the base distribution's.
    :param gaussian: [D], False for coordinates whose priors are sites and not part of the KL.
    :param distinct: check that the points are distinct.

    Example::

        basis = AffineIndependentBasis(Z, "skew_normal")
        state = basis.factor(kernel)
        mean, variance = basis.mean_and_cov(state, kernel, Xnew)
    """

    state_type = AffineState
    num_latent_gps = 1

    def __init__(
        self,
        inducing: InducingVariables | TensorType,
        base: BaseLike = "skew_normal",
        *,
        structure: str = "full",
        non_normal: int | None = None,
        A: npt.ArrayLike | None = None,
        b: npt.ArrayLike | None = None,
        theta: TensorType | None = None,
        gaussian: npt.ArrayLike | None = None,
        distinct: bool = True,
    ) -> None:
        super().__init__()
        self.inducing = as_inducing(inducing, "inducing") if distinct else inducing
        self.size = D = count_points(self.inducing)
        check_option("structure", structure, STRUCTURES)
        A = np.eye(D) if A is None else _checked(A, D)
        self.map = FullMap(A) if structure == "full" else LUMap(A)
        b = np.zeros(D) if b is None else np.asarray(b, default_float())
        if b.shape != (D,) or not np.all(np.isfinite(b)):
            raise DataError(
                f"b has shape {b.shape}; it must have the shape [D] = [{D}], and finite numbers."
            )
        self.b = Parameter(b, dtype=default_float())
        if non_normal is not None:
            _check_count(non_normal, D, structure)
        many = D > _ALL and structure == "full" and not isinstance(inducing, Weights)
        self.non_normal = int(non_normal or (_FEW if many else D))
        self._gaussian = np.ones(D) if gaussian is None else np.asarray(gaussian, default_float())
        self.assign_base(base, theta)

    @property
    def structure(self) -> str:
        """The structure of A."""
        return self.map.structure

    @property
    def gaussian(self) -> tf.Tensor:
        """1 for each coordinate with a Gaussian prior, 0 where the prior is a site, [D]."""
        return tf.constant(self._gaussian, default_float())

    def assign_base(self, base: BaseLike, theta: TensorType | None = None) -> None:
        """Change the base distribution; A, b and the first two moments of w stay.

        :param theta: shapes [k, P]; by default the base distribution's.
        """
        found = base_variable(base)
        dtype, shape = default_float(), (self.non_normal, found.num_shapes)
        value = (
            found.start(shape[0], dtype) if theta is None else tf.convert_to_tensor(theta, dtype)
        )
        if tuple(value.shape) != shape:
            raise DataError(
                f"theta has shape {tuple(value.shape)}; it must be [k, P] = {list(shape)}, k of D ="
                f" {self.size} variables."
            )
        found.check(value)
        self.base: Base = found
        self.theta = Parameter(
            value, transform=found.bijector(dtype), dtype=dtype, trainable=found.num_shapes > 0
        )

    def matrix(self) -> tf.Tensor:
        """The matrix A [D, D]."""
        return self.map.matrix()

    def entropy(self) -> tf.Tensor:
        """Entropy of q(w) in nats, a scalar."""
        normal = 0.5 * math.log(2.0 * math.pi * math.e) * (self.size - self.non_normal)
        return self.map.log_det() + tf.reduce_sum(self.base.entropy(self.shapes)) + normal

    def sample(self, n: int, seed: Seed = None) -> tf.Tensor:
        """Draw the whitened w, [n, D]."""
        first, second = tf.unstack(tfp.random.split_seed(seed, n=2, salt="AffineIndependentBasis"))
        v = self.base.sample(n, self.shapes, seed=first)
        normal = tf.random.stateless_normal([n, self.size - self.non_normal], second, dtype=v.dtype)
        return tf.linalg.matvec(self.matrix(), tf.concat([v, normal], axis=1)) + self.b  # (A1)

    @property
    def shapes(self) -> tf.Tensor:
        """Shapes theta [k, P]."""
        return tf.convert_to_tensor(self.theta)

    def divergence(self) -> tf.Tensor:
        """KL[q(w) || p(w)] in nats, a scalar, over the `gaussian` coordinates."""
        moment = tf.square(self.b) + tf.reduce_sum(tf.square(self.matrix()), axis=1)
        return (
            0.5 * tf.reduce_sum(self.gaussian * (moment + math.log(2.0 * math.pi))) - self.entropy()
        )  # (A2)

    def projections(self, group: SiteGroup) -> Projections:
        """The y_n of a group of sites: alpha [N, k] and beta [N]; normal variables become noise."""
        beta, k = group.offset + tf.linalg.matvec(group.features, self.b), self.non_normal
        alpha, noise = tf.matmul(group.features, self.matrix()), group.noise
        if k < self.size:
            normal = tf.reduce_sum(tf.square(alpha[:, k:]), axis=1)
            alpha, noise = alpha[:, :k], normal if noise is None else noise + normal
        return Projections(alpha, beta, self.shapes, noise)

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        return {"K": gram_to_factor(kernel, self.inducing)}

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> AffineState:
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.inducing))
        divergence = self.divergence() if with_kl else None
        return AffineState(
            chol,
            tf.convert_to_tensor(self.b)[:, None],
            self.matrix()[None],
            ok,
            tangent,
            divergence,
        )

    def whitened_features(self, state: AffineState, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
        """Features phi(X) = (L^-1 k(Z, X))^T, [N, D], for X [N, columns]; cost N D^2."""
        return tf.transpose(
            whiten(state.chol, state.tangent, gram_to_data(kernel, self.inducing, X))[0]
        )

    def features(self, state: AffineState, kernel: Kernel, X: tf.Tensor) -> Features:
        phi = tf.transpose(self.whitened_features(state, kernel, X))[None]
        mean = apply_per_latent(phi, state.mean, adjoint=True)
        return Features(mean, (phi,), (tf.matmul(state.root, phi, transpose_a=True),))

    def prior_kl(self, state: AffineState) -> tf.Tensor:
        """The KL of a state in nats, a scalar; `ValueError` for a state made for predictions."""
        if state.divergence is None:
            raise ValueError(
                "This state was made for predictions (with_kl=False); call factor(kernel) for the"
                " divergence."
            )
        return state.divergence


def _checked(A: npt.ArrayLike, D: int) -> np.ndarray:
    A = np.asarray(A, dtype=default_float())
    if A.shape != (D, D):
        raise DataError(
            f"A has shape {A.shape} and there are {D} inducing values: it must be [{D}, {D}]."
        )
    if not np.all(np.isfinite(A)):
        raise DataError(
            "A has entries that are not finite: start at the identity, by leaving A out."
        )
    values = np.linalg.svd(A, compute_uv=False)
    if values[-1] <= _LEAST_RATIO * values[0]:
        raise DataError(
            f"A is singular: its singular values range from {values[-1]:.3g} to {values[0]:.3g},"
            " and q would have no density. Start at the identity, by leaving A out."
        )
    return A


def _check_count(non_normal: int, D: int, structure: str) -> None:
    if not isinstance(non_normal, int | np.integer) or not 1 <= non_normal <= D:
        raise DataError(
            f"non_normal={short_repr(non_normal)}: it must be a whole number from 1 to D = {D}."
        )
    if structure != "full":
        raise DataError(
            f"non_normal={non_normal} with structure='{structure}': only structure='full' can"
            " represent every choice of directions. Use it, or leave out non_normal."
        )
