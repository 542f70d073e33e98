"""Models on inducing points."""

from __future__ import annotations

__all__ = ["InducingRoute"]

from collections.abc import Callable, Mapping
from typing import Any

from gpflow.likelihoods import MultiClass
from gpflow.models import SVGP

from ...errors import UnknownOptionError
from ...models import BasisGP
from ...optimizers import ConjugateGradients
from ...optimizers.natural_gradient.bound_gradients import as_basis_model
from ..batches import Batches, Data
from ..options import NAMES, Options
from ..plan import Plan
from .inducing_checks import check_mean_on_data, check_own_bound, check_precision, check_xla
from .lbfgs import BY_NAME as LBFGS
from .lbfgs import plan_on_all_rows
from .mean_on_data import BY_NAME, plan_on_data, undo_of
from .minibatches import plan_on_minibatches
from .replicas import check_on_replicas
from .route import Route

_OF_MEAN = frozenset({"mean_solver", "Schedule.refresh_every"})
"""The options that act on mean points alone."""
_OF_GAUSSIANS = frozenset({"natural_gradient", "hold", "negative_precision"})
"""The options that act only on parts of q that have natural parameters."""
_NO_NATURAL = (
    "The covariance of this model has no natural parameters (a DVGP with"
    ' covariance="coupled" has them).'
)


class InducingRoute(Route):
    """`BasisGP` with its kin (`ODVGP`, `SparseCVIGP`, ...) and plain `gpflow.models.SVGP`."""

    name = "inducing"
    models = ("BasisGP", "SVGP")
    takes = NAMES
    reasons = {
        **dict.fromkeys(_OF_MEAN, "This model has no mean points of its own."),
        **dict.fromkeys(_OF_GAUSSIANS, _NO_NATURAL),
    }
    defaults = {"natural_gradient": "auto", "ramp_steps": 10, "hold": "auto"}
    holds = ("auto", "sites", "whitened")
    compiles = (True, False, "xla")

    def taken_by(self, model: Any) -> frozenset[str]:
        if _data_mean_of(model) is not None:
            return self.takes - {"Schedule.refresh_every"}
        stored = isinstance(model, BasisGP) and model.basis.kernel_mean is not None
        lacks = frozenset() if stored else _OF_MEAN
        return self.takes - (lacks if _has_gaussians(model) else lacks | _OF_GAUSSIANS)

    def only_of(self, model: Any) -> Mapping[str, object]:
        return {} if _has_gaussians(model) else {"natural_gradient": None}

    def defaults_of(self, model: Any, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Choose Adam for q(u) too if the likelihood is a robust maximum and no option asks
        otherwise.
        """
        solver = asked.get("mean_solver", "adam")
        natural = {"hold", "negative_precision"} & set(asked) or (
            getattr(solver, "method", solver) != "adam"
        )
        robust = isinstance(model.likelihood, MultiClass)
        if robust and not natural and _data_mean_of(model) is None:
            return {**self.defaults, "natural_gradient": None}
        return self.defaults

    def check(self, model: Any, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        check_own_bound(model)
        if (strategy := asked.get("strategy")) is not None:
            check_on_replicas(model, strategy, asked)
        if asked.get("compile") == "xla":
            check_xla()
        if asked.get("precision") == "mixed":
            check_precision(self.view(model))
        if _data_mean_of(model) is not None:
            check_mean_on_data(model, asked.get("mean_solver"), BY_NAME)

    def options(self, model: Any, asked: Mapping[str, Any]) -> Options:
        named: dict[str, Any] = dict(asked)
        if _is_called(BY_NAME, asked.get("mean_solver")):
            named["mean_solver"] = ConjugateGradients()
        if _is_called(LBFGS, asked.get("optimizer")):
            named |= {"optimizer": None, "on_all_rows": True}  # Adam, on minibatches
        return super().options(model, named)

    def view(self, model: BasisGP | SVGP) -> BasisGP:
        return as_basis_model(model)

    def undo(self, model: Any) -> Callable[[], None]:
        mean = _data_mean_of(model)
        return super().undo(model) if mean is None else undo_of(mean)

    def accept(self, model: BasisGP | SVGP, view: BasisGP, batches: Batches) -> None:
        view.num_data = model.num_data = batches.num_data

    def plan(self, model: BasisGP, data: Data, options: Options) -> Plan:
        mean = model.basis.data_mean
        if mean is not None:
            if options.on_all_rows:
                raise UnknownOptionError(
                    f'optimizer={LBFGS!r}: training with gamma="data" climbs all rows anyway where'
                    " that pays; leave it out."
                )
            return plan_on_data(model, mean, data, options)
        if options.on_all_rows:
            return plan_on_all_rows(model, data, options)
        return plan_on_minibatches(model, data, options)


def _data_mean_of(model: BasisGP | SVGP) -> Any:
    return model.basis.data_mean if isinstance(model, BasisGP) else None


def _has_gaussians(model: BasisGP | SVGP) -> bool:
    return not isinstance(model, BasisGP) or bool(model.basis.gaussian_parameters())


def _is_called(name: str, option: object) -> bool:
    return isinstance(option, str) and option == name
