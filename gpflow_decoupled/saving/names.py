"""The classes and functions that a file may name."""

from __future__ import annotations

__all__ = ["Names", "name_of"]

import sys
from collections.abc import Callable, Iterable

import gpflow.likelihoods.utils
import tensorflow as tf

from ..errors import DataError
from ..probability import tfb, tfd

_PACKAGES = (
    "gpflow.base", "gpflow.functions", "gpflow.inducing_variables", "gpflow.kernels",
    "gpflow.likelihoods", "gpflow.models", "gpflow.quadrature", "gpflow_decoupled.bases",
    "gpflow_decoupled.covariances.shared_and_own", "gpflow_decoupled.distributions",
    "gpflow_decoupled.expectations", "gpflow_decoupled.inducing",
    "gpflow_decoupled.likelihoods", "gpflow_decoupled.models",
    "gpflow_decoupled.training.normal_scores", "gpflow_decoupled.training.standardization",
    "gpflow_decoupled.training.row_numbers",
    "gpflow_decoupled.training.standardized", "gpflow_decoupled.training.tables",
    "gpflow_decoupled.training.units.own_parts",
)  # fmt: skip
"""Whose classes, defined there, may be made and filled with attributes."""
_MADE: tuple[type, ...] = (
    tfb.Ascending, tfb.Chain, tfb.Exp, tfb.FillTriangular, tfb.Identity, tfb.Invert, tfb.Log,
    tfb.Reciprocal, tfb.Scale, tfb.Shift, tfb.Sigmoid, tfb.Softplus, tfb.Square, tfb.Tanh,
    tfd.Bernoulli, tfd.Beta, tfd.Categorical, tfd.Cauchy, tfd.Exponential, tfd.Gamma,
    tfd.GeneralizedNormal, tfd.Gumbel, tfd.HalfCauchy, tfd.HalfNormal, tfd.Independent,
    tfd.InverseGamma, tfd.Laplace, tfd.LogNormal, tfd.Logistic, tfd.MixtureSameFamily,
    tfd.MultivariateNormalDiag, tfd.MultivariateNormalDiagPlusLowRank,
    tfd.MultivariateNormalFullCovariance, tfd.MultivariateNormalTriL, tfd.Normal, tfd.Poisson,
    tfd.SinhArcsinh, tfd.StudentT, tfd.Uniform, tfd.VonMises,
)  # fmt: skip
"""Bijectors and distributions of models, whose constructors take no more memory than their
arguments; of others a short file can ask for any.
"""
_FUNCTIONS: dict[str, Callable] = {
    "inv_probit": gpflow.likelihoods.utils.inv_probit,
    "exp": tf.exp,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
    "square": tf.square,
    "tanh": tf.tanh,
}
"""With which likelihoods and transforms are made."""


def name_of(thing: type | Callable) -> str:
    """A name of a class or function that `Names.find` finds again."""
    for name, function in _FUNCTIONS.items():
        if thing is function:
            return name
    name, module = getattr(thing, "__qualname__", "<unnamed>"), getattr(thing, "__module__", "")
    if "<" in name:
        raise DataError(
            f"{module}.{name} has no name that another process knows: define it in a module, not"
            " in another function; or save the numbers alone, by"
            " gpflow.utilities.parameter_dict(model)"
        )
    return f"{module}:{name}"


class Names:
    """Looks names up: in the packages that models are made of, and among a caller's classes."""

    # No module is imported for a name in a file. `own` has the caller's trusted classes and
    # functions.

    def __init__(self, own: Iterable[type | Callable]) -> None:
        known: tuple[type | Callable, ...] = (*_MADE, *own)
        self._own = {name_of(one): one for one in known}

    def function(self, name: object) -> Callable:
        """The function of a name; raises `DataError` for an unknown one."""
        if isinstance(name, str):
            found = _FUNCTIONS.get(name, self._own.get(name))
            if callable(found) and not isinstance(found, type):
                return found
        raise self._unknown(name)

    def kind(self, name: object, base: type = object) -> type:
        """The class of a name, derived from `base`; raises `DataError` for others."""
        found = self._own.get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, str):
            module, _, part = name.partition(":")
            if any(module == one or module.startswith(f"{one}.") for one in _PACKAGES):
                found = (
                    getattr(sys.modules.get(module), part, None) if part.isidentifier() else None
                )
                found = found if getattr(found, "__module__", None) == module else None
        if isinstance(found, type) and issubclass(found, base):
            return found
        raise self._unknown(name)

    @staticmethod
    def _unknown(name: object) -> DataError:
        short = str(name).partition(":")[2] or str(name)
        return DataError(
            f"it needs {str(name).replace(':', '.')[:200]}, which is no usual part of GPflow's"
            " models or of this package's: if you use it or it is your own, import it and call"
            f" load(path, classes=[{short[:100]}]). If you do not know it, do not trust the file"
        )
