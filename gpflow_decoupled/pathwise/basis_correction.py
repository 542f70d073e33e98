"""The correction to draws of q(f)."""

from __future__ import annotations

__all__ = ["BasisCorrection", "basis_correction"]

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy

from ..bases import Basis
from ..models import BasisGP, FullGP
from .arrays import project
from .prior import PriorDraws
from .projection import prior_coordinates


@dataclass
class BasisCorrection:
    """The mean of q plus its noise, minus the values of S prior draws at the conditioning points.

    `minus` has whitened values eta [S, L, M] of `prior_coordinates`, `plus` standard normal numbers
    [S, L, M].
    """

    kernel: Kernel
    basis: Basis
    state: tuple[tf.Tensor, ...]
    minus: tuple[tf.Tensor, ...]
    plus: tuple[tf.Tensor, ...]
    gap: float = 0.0
    """No iterative solve."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the basis."""
        return self.basis.sizes

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, N, L] at X [N, D], or X [S N, D] if `own`; N M^2 + S N M per latent."""
        features = self.basis.features(self.state, self.kernel, X)
        parts = [-project(feature, eta, own) for feature, eta in zip(features.minus, self.minus)]
        parts += [project(feature, noise, own) for feature, noise in zip(features.plus, self.plus)]
        values = tf.linalg.matrix_transpose(tf.add_n(parts))
        return values + (tf.reshape(features.mean, tf.shape(values)) if own else features.mean)


def basis_correction(
    model: BasisGP | FullGP,
    kernel: Kernel,
    prior: PriorDraws,
    X: tf.Tensor,
    rng: np.random.Generator,
) -> BasisCorrection:
    """Draw the noise of q and whiten the prior draws; `basis.factor`, and S (M F + M^2).

    X is one input [1, D], which sets the sizes of the features.
    """
    basis = deepcopy(model.basis)
    state = basis.factor(kernel, with_kl=False)
    minus = prior_coordinates(basis, state, kernel, prior, rng)
    shapes = [
        (prior.num_samples, basis.num_latent_gps, int(part.shape[1]))
        for part in basis.features(state, kernel, X).plus
    ]
    plus = tuple(tf.constant(rng.standard_normal(shape), X.dtype) for shape in shapes)
    return BasisCorrection(kernel, basis, state, minus, plus)
