"""The log evidence after a run."""

from __future__ import annotations

__all__ = ["final_evidence"]

import time

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..covariances.latents import split_latents
from ..covariances.products import kernel_product
from ..errors import NumericalError
from ..models import BasisGP, Evidence, FactorGraph, FullGP
from ..models.evidence.bounds import EXACT_ROWS
from ..models.neighbours import GaussianNNGP
from ..models.neighbours.evidence import has_evidence

_SHARE = 0.1
"""Largest share of the run's own seconds: the evidence was not asked for."""
_UNNOTICED = 0.1
"""Seconds that are spent after a run of any length."""
_PROBES = 16
"""Of the upper end. The certain one is often 100 times as far from the evidence."""
_LOOSE = 1e-4
"""Nats per row that the quadratic term may leave: neighbours leave a hundred times as many."""
_EXACT_SECONDS = 0.6
"""Of an exact evidence of 2,000 rows, for each covariance matrix."""
_ROW_SECONDS = 5e-4
"""Of the neighbours and the points of a row."""
_PRODUCTS = 120
"""With the kernel matrix, in products of single precision with one column."""
_TIMED = 2_048
"""Rows for a timed product."""


def final_evidence(
    model: GPModel | FactorGraph,
    data: RegressionData | None,
    seconds: float,
    left: float = float("inf"),
) -> Evidence | None:
    """Return `model.evidence` of the training data if it is affordable.

    :param data: X [N, D] and Y [N, P] if they are in memory; a model's own data come first.
    :param seconds: of the run; the evidence may take a tenth of them.
    :param left: seconds until the limit of the run, which the evidence keeps.
    :return: None for other likelihoods, mixed outputs, data not in memory, and too many rows for
        the time.
    """
    if not isinstance(model, (BasisGP, FullGP, GaussianNNGP)) or not has_evidence(model):
        return None
    data = data if isinstance(model, BasisGP) else model.data
    if data is None or _seconds(model, data[0]) > max(_UNNOTICED, min(_SHARE * seconds, left)):
        return None
    tolerance = max(0.1, _LOOSE * len(data[0]))
    try:
        if isinstance(model, BasisGP):
            return model.evidence(data, probes=_PROBES, tolerance=tolerance)
        return model.evidence(probes=_PROBES, tolerance=tolerance)
    except (NumericalError, KeyboardInterrupt):  # the run is over, and its result is not lost
        return None


def _seconds(model: GPModel, X: tf.Tensor) -> float:
    N, kernels = len(X), split_latents(model.kernel)
    if N <= EXACT_ROWS:
        return len(kernels) * _EXACT_SECONDS * (N / EXACT_ROWS) ** 3
    setup = len(kernels) * _ROW_SECONDS * N
    few = X[:_TIMED]
    column = tf.ones([len(few), 1], few.dtype)

    def product() -> None:
        kernel_product(kernels[0][0], few, None, column, dtype=tf.float32).numpy()

    product()  # compiles
    began = time.perf_counter()
    product()
    return setup + _PRODUCTS * len(kernels) * (time.perf_counter() - began) * (N / len(few)) ** 2
