"""Models of neighbours and fields, and likelihoods with Parameters, as `entries` has others."""

from __future__ import annotations

__all__ = ["LOCAL"]

from collections.abc import Callable
from dataclasses import replace

import gpflow
from scipy import sparse

from gpflow_decoupled import likelihoods, models, optimizers

from .calls import Entry, full_model
from .world import COUNTS, LABELS, X, Y, kernel, noise

_STEPS = sparse.diags([-1.0, 1.0], [0, 1], (11, 12))
_PRECISION = (_STEPS.T @ _STEPS + 0.1 * sparse.eye(12)).tocsc()


OF_COLUMNS = (
    "a column that is not there",
    "a slice of columns",
    "lengthscales for other columns",
    "variances for other columns",
)
"""Kernels that are wrong for two inputs, in other words where there is one."""


def _local(data: tuple, num_neighbours: int = 5, **given: object) -> models.NNGP:
    return models.NNGP(data, num_neighbours=num_neighbours, **given)


def _field(Y: object = COUNTS, **given: object) -> models.GMRF:
    precision = given.pop("precision", _PRECISION)
    return models.GMRF(precision, Y, gpflow.likelihoods.Poisson(), **given)


def _law(make: Callable[..., object], **kinds: str) -> Entry:
    """A likelihood with Parameters, which may be arrays."""
    return Entry(make, {}, kinds, dict.fromkeys(kinds, ("[0.1]",)))


def _of_gaussian_noise(entry: Entry) -> Entry:
    """No likelihood is Gaussian noise."""
    return replace(entry, accepted={**entry.accepted, "likelihood": ("None",)})


_NEIGHBOURS = {
    "NNGP": full_model(
        _local,
        Y,
        noise,
        "outputs",
        kernel="kernel",
        mean_function="mean function",
        num_neighbours="whole number",
        mean="word",
    ),
    "NNGP of labels": full_model(
        _local, LABELS, gpflow.likelihoods.Bernoulli, "labels", kernel="kernel"
    ),
    "NNGP of classes": full_model(
        _local, LABELS, lambda: likelihoods.CategoricalLogit(2), "labels", kernel="kernel"
    ),
}
LOCAL: dict[str, Entry] = {
    **{name: _of_gaussian_noise(entry) for name, entry in _NEIGHBOURS.items()},
    "StateSpaceGP": Entry(
        lambda X, Y, **given: models.StateSpaceGP((X, Y), **given),
        {"X": X[:, :1], "Y": Y, "likelihood": noise, "kernel": kernel},
        {
            "X": "paired inputs",
            "Y": "outputs",
            "likelihood": "likelihood",
            "kernel": "kernel",
            "mean_function": "mean function",
            "harmonics": "whole number",
        },
        {"Y": ("twice the columns",), "kernel": OF_COLUMNS},
    ),
    "GMRF": Entry(
        _field,
        {"Y": COUNTS},
        {"Y": "counts", "precision": "object"},
        {"Y": ("too few rows", "integers", "booleans")},  # rows are those of the precision
    ),
    "LinearlyConstrainedLagrangian of a field": Entry(
        lambda model, **given: optimizers.LinearlyConstrainedLagrangian(**given).run(model),
        {"model": _field},
        {"model": "model", "inner": "word", "tolerance": "rate", "max_outer": "whole number"},
    ),
    "BetaBinomial": _law(likelihoods.BetaBinomial, concentration="rate"),
    "ZeroInflatedPoisson": _law(likelihoods.ZeroInflatedPoisson, zero_share="share"),
    "ZeroInflatedNegativeBinomial": _law(
        likelihoods.ZeroInflatedNegativeBinomial, zero_share="share", size="rate"
    ),
    "HurdlePoisson": _law(likelihoods.HurdlePoisson, zero_share="share"),
    "HurdleNegativeBinomial": _law(
        likelihoods.HurdleNegativeBinomial, zero_share="share", size="rate"
    ),
    "CensoredNormal": _law(likelihoods.CensoredNormal, scale="rate"),
    "LogNormal": _law(likelihoods.LogNormal, scale="rate"),
    "Weibull": _law(likelihoods.Weibull, shape="rate"),
    "AsymmetricLaplace": _law(likelihoods.AsymmetricLaplace, quantile="share", scale="rate"),
    "Tweedie": _law(likelihoods.Tweedie, dispersion="rate"),
}
"""By the name that the title of a case has."""
