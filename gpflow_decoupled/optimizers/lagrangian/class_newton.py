"""`optimality_newton` for sites that couple a row's latents."""

from __future__ import annotations

__all__ = ["class_direction"]

import tensorflow as tf

from ...errors import ModelError
from ...likelihoods.sites.categorical_site import CategoricalLoss
from ...linalg.class_systems import class_solve
from .dual import DualProblem, Marginals


def class_direction(problem: DualProblem, at: Marginals) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The step of alpha and lam [N, C] by (V27) with (V35), and whether its system has a solution.

    Cost per class: 19/6 N^3, of which 3/2 are for V.
    """
    loss = problem.loss
    if not isinstance(loss, CategoricalLoss):
        raise ModelError(f"{type(loss).__name__} has no weights of classes.")
    slopes = loss.expand(at.mean, at.deviation)
    s, E = loss.tilt_and_weight(at.mean, at.deviation)
    right = slopes.d_h - at.alpha, slopes.d_s / at.deviation - at.lam
    V = problem.geometry.covariance(problem.prior, at.state)
    E, D, r, q = (tf.transpose(part) for part in (E, 1.0 - 2.0 * s, *right))
    d_alpha, d_lam, ok = class_solve(tf.convert_to_tensor(problem.prior), V, E, D, r, q)
    return tf.transpose(d_alpha), tf.transpose(d_lam), ok
