"""The contents of a plot."""

from __future__ import annotations

__all__ = ["Curve", "Observed", "curve", "inducing_sets", "inside", "observed"]

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, ScalarLikelihood, Softmax
from gpflow.models import GPModel

from ..diagnostics import has_scale
from ..errors import DataError
from ..inducing.variables import point_values
from ..inputs import as_pair, as_values, check_finite_entries, float_type
from ..likelihoods import BernoulliLogit, BernoulliProbit, CategoricalLogit
from ..training import Standardized

POINTS = {
    "beta": "inducing points beta",
    "gamma": "mean points gamma",
    "alpha": "mean points alpha",
}
_BINARY = (Bernoulli, BernoulliLogit, BernoulliProbit)


class Curve(NamedTuple):
    """A posterior at inputs, on the scale of the observations."""

    centre: np.ndarray
    """[N, P]: mean of f if observations are f plus noise, else mean of an observation."""
    low: np.ndarray | None
    """[N, P], lower end of a 0.95 interval of f, if known."""
    high: np.ndarray | None
    """[N, P], its upper end."""
    noise: np.ndarray | None
    """[N, P], standard deviation of an observation under Gaussian noise, else None."""
    name: str
    """The name of `centre`."""


class Observed(NamedTuple):
    """Data of a plot."""

    X: np.ndarray
    """[N, D]"""
    Y: np.ndarray
    """[N, P]"""
    names: list[str]
    """[D], names of the columns of X."""


def inside(model: GPModel | Standardized) -> GPModel:
    """The GPflow model of a `Standardized` one; any other unchanged; `DataError` for no model."""
    found = model.model if isinstance(model, Standardized) else model
    if not hasattr(found, "predict_y"):
        raise DataError(f"model is a {type(model).__name__}; pass a GPflow model, or a built one.")
    return found


def curve(model: GPModel | Standardized, X: np.ndarray) -> Curve:
    """Return the posterior at X [N, D].

    The interval is mean -+ 2 standard deviations of f, or quantiles of a non-Gaussian f, mapped to
    the conditional mean (say, a probability) unless observations are f plus noise.
    """
    likelihood = inside(model).likelihood
    scaled = has_scale(likelihood)
    if not scaled and not isinstance(likelihood, ScalarLikelihood):
        name = (
            "probability of"
            if isinstance(likelihood, (CategoricalLogit, MultiClass, Softmax))
            else "mean of y"
        )
        return Curve(model.predict_y(X)[0].numpy(), None, None, None, name)
    mean, variance = (part.numpy() for part in model.predict_f(X))
    ends = [mean - 2.0 * np.sqrt(variance), mean + 2.0 * np.sqrt(variance)]
    if hasattr(model, "predict_f_quantiles"):
        ends = [end[:, None] for end in model.predict_f_quantiles(X, (0.025, 0.975)).T]
    if scaled:
        noise = np.sqrt(model.predict_y(X)[1].numpy()) if isinstance(likelihood, Gaussian) else None
        return Curve(mean, ends[0], ends[1], noise, "mean")
    low, high = (np.asarray(likelihood.conditional_mean(X, end)) for end in ends)
    centre = model.predict_y(X)[0].numpy()
    name = "probability of 1" if isinstance(likelihood, _BINARY) else "mean of y"
    return Curve(centre, np.minimum(low, high), np.maximum(low, high), None, name)


def observed(model: GPModel | Standardized, data: Sequence[npt.ArrayLike] | None) -> Observed:
    """Return X [N, D] and Y [N, P]: the argument, or the model's data."""
    inside(model)
    if data is None:
        data = (
            model.training_data if isinstance(model, Standardized) else getattr(model, "data", None)
        )
    if data is None:
        raise DataError(f"This {type(model).__name__} does not keep its data: pass (X, Y).")
    given: Sequence[object]
    if isinstance(model, Standardized) and model.table.columns:
        given, names = model.table.arrays(data), list(model.table.names)
    else:
        given = as_pair(data)
        names = [str(name) for name in getattr(given[0], "columns", ())]
    X, Y = (
        as_values(array, name, float_type(inside(model).kernel)) for array, name in zip(given, "XY")
    )
    for array, name in ((X, "X"), (Y, "Y")):
        if array.ndim != 2 or len(array) == 0 or len(array) != len(X):
            fix = (
                f"use {name}[:, None]"
                if array.ndim == 1
                else "pass X [N, D] and Y [N, P] of the same N observations"
            )
            raise DataError(f"{name} has shape {array.shape}; {fix}.")
        several = name == "Y" and array.shape[1] > 1  # whose gaps are not drawn
        check_finite_entries(np.where(np.isnan(array), 0.0, array) if several else array, name)
    if not names:
        names = ["x"] if X.shape[1] == 1 else [f"x{column}" for column in range(X.shape[1])]
    return Observed(X, Y, names)


def inducing_sets(model: GPModel | Standardized) -> dict[str, np.ndarray]:
    """Inducing points [M, D] by their names in a legend, in the units of X."""
    part = inside(model)
    basis = getattr(part, "basis", None)
    found = {label: getattr(basis, name, None) for name, label in POINTS.items()}
    if basis is None:
        found = {"inducing points": getattr(part, "inducing_variable", None)}
    sets = {
        label: point_values(variable) for label, variable in found.items() if variable is not None
    }
    values = {label: np.asarray(arrays[0]) for label, arrays in sets.items() if arrays}
    if isinstance(model, Standardized):
        return {label: np.asarray(model.inputs.inverse_transform(Z)) for label, Z in values.items()}
    return values
