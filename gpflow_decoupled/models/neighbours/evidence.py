"""The evidence of a model with Gaussian noise, by groups of outputs."""

from __future__ import annotations

__all__ = ["EvidenceOfOwnData", "evidence_of", "has_evidence"]

from typing import cast

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ...errors import ModelError
from ..evidence import Evidence, EvidenceSettings, Observed, evidence_interval
from .groups import groups_of, jitter_variances, noise_variances
from .observed import residuals_of


class EvidenceOfOwnData:
    """The evidence of a model that owns its data, a mixin."""

    data: tuple[tf.Tensor, tf.Tensor]

    def evidence(
        self,
        *,
        num_neighbours: int = 100,
        tolerance: float = 0.1,
        probes: int = 0,
        seed: int = 0,
    ) -> Evidence:
        """Bound the log evidence log p(Y) at the present kernel, noise and mean function.

        For Gaussian noise; q(f) does not matter. Exact up to 2,000 rows. Beyond, the lower end is
        certified: neighbours bound log|K + D|, conjugate gradients the quadratic term (N4). The
        jitter of an `NNGP` counts as noise.

        :param num_neighbours: m of the lower end, which rises with it.
        :param tolerance: largest part of the interval from the quadratic term, in nats.
        :param probes: 0 gives a certain, wide upper end; this number of random vectors, say 16,
            an estimate plus two standard errors.
        :param seed: of an ordering, points and vectors.
        :raises ModelError: for another likelihood, and for mixed outputs.
        :raises DataError: for values out of range.
        :raises NumericalError: if a covariance cannot be factorised.

        Cost: N (m^3 / 3 + m^2 D + M^2) for M = 1,000 points, and some twenty products with the
        kernel matrix, N^2 D each; for S probes ten to forty more, N^2 (D + S). Example::

            model = gpflow_decoupled.models.NNGP((X, Y), kernel, num_neighbours=30)
            print(model.evidence(probes=16))
        """
        settings = EvidenceSettings(num_neighbours, tolerance, probes, seed)
        return evidence_of(cast(GPModel, self), self.data, settings)


def evidence_of(
    model: GPModel, data: tuple[tf.Tensor, tf.Tensor], settings: EvidenceSettings
) -> Evidence:
    """Bound the log evidence of data under a model's kernel, noise and mean function.

    :param model: with Gaussian noise.
    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param settings: see `EvidenceOfOwnData.evidence`.
    :raises ModelError: for another likelihood, and for mixed outputs.
    """
    _check(model)
    X, Y = data
    residuals = residuals_of(model.mean_function, X, Y)
    noise = noise_variances(model.likelihood, X, tf.range(tf.shape(X)[0])) + tf.zeros_like(
        residuals
    )
    groups = groups_of(model.kernel, model.likelihood, data)
    if getattr(model, "jitter_is_noise", False):
        noise += jitter_variances(groups, X)
    parts = []
    for group in groups:
        rows = np.arange(int(X.shape[0])) if group.rows is None else group.rows
        y = tf.gather(residuals, group.columns, axis=1)
        arrays = X, y, noise[:, group.columns[0]]
        parts.append(Observed(group.kernel, *(tf.gather(array, rows) for array in arrays)))
    return evidence_interval([part for part in parts if len(part.X)], settings)


def has_evidence(model: GPModel) -> bool:
    """True for Gaussian noise and outputs that are not mixed, where `evidence_of` works."""
    return isinstance(model.likelihood, Gaussian) and not isinstance(
        model.kernel, LinearCoregionalization
    )


def _check(model: GPModel) -> None:
    if not isinstance(model.likelihood, Gaussian):
        raise ModelError(
            f"The log evidence is bounded for Gaussian noise, and the likelihood is"
            f" {type(model.likelihood).__name__}: compare models by model.elbo, a lower bound, or"
            " by held-out log densities."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise ModelError(
            "The log evidence is bounded where each output has a Gaussian process of its own, and"
            " LinearCoregionalization mixes them: compare models by model.elbo, or by held-out log"
            " densities."
        )
