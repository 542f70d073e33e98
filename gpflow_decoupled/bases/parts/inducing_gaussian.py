"""q(u) = N(m, S): its Parameters, and whitening u = L u~, L = chol K_beta."""

# q_mu and q_sqrt describe u~ if `whiten=True`, else u; the package works with u~.

from __future__ import annotations

__all__ = [
    "assign_whitened", "assign_whitened_root", "gaussian_parameters", "root_parameter",
    "whiten_columns", "whitened", "whitened_root",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.utilities import triangular

from ...errors import DataError
from ...inputs import as_values, check_whole
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import lower_product
from ...linalg.whitening import whiten
from ..base import GaussianPart


def gaussian_parameters(
    size: int,
    num_latent_gps: int,
    mean: TensorType | None = None,
    root: TensorType | None = None,
    names: tuple[str, str] = ("q_mu", "q_sqrt"),
) -> tuple[Parameter, Parameter]:
    """Return Parameters q_mu [M, L] and q_sqrt [L, M, M]; given Parameters are shared."""
    root = root_parameter(size, num_latent_gps, root, names[1])
    if mean is None:
        mean = np.zeros((size, num_latent_gps))
    mean = _checked(mean, names[0], "M, L", (int(size), num_latent_gps))
    return mean if isinstance(mean, Parameter) else Parameter(mean, dtype=default_float()), root


def root_parameter(
    size: int, num_latent_gps: int, root: TensorType | None = None, name: str = "q_sqrt"
) -> Parameter:
    """Return a lower triangular Parameter [L, M, M]; arguments as for `gaussian_parameters`."""
    check_whole(1, num_latent_gps=num_latent_gps)
    size = int(size)
    if root is None:
        root = np.tile(np.eye(size), (num_latent_gps, 1, 1))
    root = _checked(root, name, "L, M, M", (num_latent_gps, size, size))
    if isinstance(root, Parameter):
        return root
    return Parameter(np.tril(root), transform=triangular(), dtype=default_float())


def _checked(
    value: TensorType, name: str, letters: str, shape: tuple[int, ...]
) -> np.ndarray | Parameter:
    array = value if isinstance(value, Parameter) else as_values(value, name)
    if tuple(array.shape) != shape:
        raise DataError(
            f"{name} has shape {tuple(array.shape)}; it must be [{letters}] = {list(shape)}."
        )
    if isinstance(array, np.ndarray) and not np.all(np.isfinite(array)):
        raise DataError(
            f"{name} has entries that are not finite; pass finite ones, or leave {name} out."
        )
    return array


def whiten_columns(
    chol: tf.Tensor, tangent: tf.Tensor | None, columns: tf.Tensor, adjoint: bool = False
) -> tf.Tensor:
    """L^-1 (or L^-T if `adjoint`) times a column per latent: [G, M, M], [M, L] -> [M, L]; M^2 L."""
    if chol.shape[0] == 1:
        return tf.squeeze(whiten(chol, tangent, columns[None], adjoint), 0)
    return tf.transpose(whiten(chol, tangent, tf.transpose(columns)[..., None], adjoint)[..., 0])


def whitened_root(
    chol: tf.Tensor, tangent: tf.Tensor | None, root: Parameter, whitened_already: bool
) -> tf.Tensor:
    """The whitened lower root [L, M, M] of S, L^-1 root; M^3 unless whitened already."""
    value = tf.linalg.band_part(tf.convert_to_tensor(root), -1, 0)
    return value if whitened_already else tf.linalg.band_part(whiten(chol, tangent, value), -1, 0)


def whitened(
    chol: tf.Tensor,
    tangent: tf.Tensor | None,
    mean: Parameter,
    root: Parameter,
    whitened_already: bool,
) -> GaussianPart:
    """Whitened q(u), m~ = L^-1 m and L^-1 root, for chol [G, M, M]; M^3 unless whitened already."""
    value = tf.convert_to_tensor(mean)
    if not whitened_already:
        value = whiten_columns(chol, tangent, value)
    return GaussianPart(value, whitened_root(chol, tangent, root, whitened_already))


def assign_whitened_root(
    chol: tf.Tensor, new: tf.Tensor, root: Parameter, whitened_already: bool
) -> None:
    """Write a whitened root [L, M, M] to its Parameter, inverse to `whitened_root`."""
    value = new if whitened_already else lower_product(chol, new)
    # FillTriangular would scramble entries above the diagonal
    root.assign(tf.linalg.band_part(value, -1, 0))


def assign_whitened(
    chol: tf.Tensor, new: GaussianPart, mean: Parameter, root: Parameter, whitened_already: bool
) -> None:
    """Write a whitened Gaussian, [M, L] and [L, M, M], to its Parameters, inverse to `whitened`."""
    mean.assign(new.mean if whitened_already else apply_per_latent(chol, new.mean))
    assign_whitened_root(chol, new.root, root, whitened_already)
