"""The evidence under Gaussian noise."""

from __future__ import annotations

__all__ = [
    "EvidenceOfOwnData", "check_evidence", "evidence_of", "has_evidence", "log_evidence_of",
    "observed_parts",
]  # fmt: skip

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.models import GPModel

from ...errors import ModelError, check_parameters, naming_memory
from ...likelihoods.facts import is_gaussian, name_of
from ..evidence import Evidence, EvidenceSettings, Observed, evidence_interval
from .conditionals import residuals_of
from .groups import Group, by_noise, groups_of, noise_of_group, noise_variances, relative_jitter
from .likelihood import of_distinct


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

        For Gaussian noise, whatever q(f) is. Exact up to 2,000 distinct inputs; beyond, the lower
        end is certified (N4). Both ends leave room for round-off, which is much where the noise is
        small.

        :param num_neighbours: m of the lower end, which rises with it.
        :param tolerance: largest part of the interval from the quadratic term, in nats.
        :param probes: random vectors: 0 gives a certain, wide upper end; 16 an estimate that is
            above the evidence in 97.5 % of draws.
        :param seed: of order, points and vectors.
        :raises ModelError: for another likelihood, and for mixed outputs.
        :raises NumericalError: also for Parameters that are not finite.

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
    """
    groups = check_evidence(model, data)
    with naming_memory(
        lambda: (
            f"the evidence of {type(model).__name__} on {int(data[0].shape[0])} rows: take a"
            " sample of the rows, or fewer num_neighbours and probes"
        )
    ):
        parts, rest = zip(*map(of_distinct, observed_parts(model, data, groups)))
        found = evidence_interval(parts, settings).shifted(sum(rest))
    return replace(found, num_data=int(data[0].shape[0]))


def observed_parts(
    model: GPModel,
    data: tuple[tf.Tensor, tf.Tensor],
    groups: Sequence[Group],
    rows: np.ndarray | None = None,
) -> list[Observed]:
    """The observations of each group that has some, which are independent of the others.

    :param model: with Gaussian noise; its own jitter, if it has one, counts as noise.
    :param data: X [N, D] and Y [N, P], NaN where it is missing.
    :param groups: of outputs with one covariance matrix, see `by_noise`.
    :param rows: row numbers [B]; all rows if not given.
    """
    rows = np.arange(int(data[0].shape[0])) if rows is None else rows
    parts = []
    for group in groups:
        chosen = rows if group.rows is None else rows[np.isin(rows, group.rows)]
        if len(chosen) == 0:
            continue
        X, Y = (tf.gather(array, chosen) for array in data)
        residuals = tf.gather(residuals_of(model.mean_function, X, Y), group.columns, axis=1)
        noise = noise_variances(model.likelihood, X, tf.constant(chosen, tf.int32))
        noise = noise_of_group(noise, group)[:, 0]
        if getattr(model, "jitter_is_noise", False):
            noise += relative_jitter(X.dtype) * group.kernel(X, full_cov=False)
        parts.append(Observed(group.kernel, X, residuals, noise))
    return parts


def log_evidence_of(model: GPModel, data: tuple[tf.Tensor, tf.Tensor]) -> Callable[[], tf.Tensor]:
    """The exact log evidence as a function of the hyperparameters.

    :param model: with Gaussian noise and outputs that are not mixed.
    :param data: X [N, D] and Y [N, P].
    :return: a function that returns nats [], NaN where it cannot be computed; N^3 / 3 a group.
    """
    groups = by_noise(groups_of(model.kernel, data[1]), model.likelihood, data[0])
    return lambda: tf.add_n([p.log_density() for p in observed_parts(model, data, groups)])


def has_evidence(model: GPModel) -> bool:
    """True for Gaussian noise and outputs that are not mixed, where `evidence_of` works."""
    mixed = isinstance(model.kernel, LinearCoregionalization)
    return is_gaussian(model.likelihood) and not mixed


def check_evidence(model: GPModel, data: tuple[tf.Tensor, tf.Tensor]) -> list[Group]:
    """Refuse a model without evidence of X [N, D] and Y [N, P]; return groups of one covariance."""
    if not is_gaussian(model.likelihood):
        raise ModelError(
            f"The log evidence is bounded for Gaussian noise, and the likelihood is"
            f" {name_of(model.likelihood)}: compare models by model.elbo, a lower bound, or"
            " by held-out log densities."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise ModelError(
            "The log evidence is bounded where the outputs have separate Gaussian processes, and"
            " LinearCoregionalization mixes them: compare models by model.elbo, or by held-out log"
            " densities."
        )
    check_parameters(model, "log evidence")
    return by_noise(groups_of(model.kernel, data[1]), model.likelihood, data[0])
