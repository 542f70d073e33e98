"""All routes, and which of them trains a model."""

from __future__ import annotations

__all__ = ["ROUTES", "route_for"]

from ...errors import ModelError
from ...models.families import ways_to_train
from .affine_independent import AffineIndependentRoute
from .inducing import InducingRoute
from .mean_field import MeanFieldRoute
from .multipliers import MultipliersRoute
from .route import Route
from .sites import SitesRoute

ROUTES: tuple[Route, ...] = (
    InducingRoute(),
    SitesRoute(),
    MultipliersRoute(),
    AffineIndependentRoute(),
    MeanFieldRoute(),
)


def route_for(model: object) -> Route:
    """The route of a model.

    :raises ModelError: if there is none, with what trains this model instead.
    """
    for route in ROUTES:
        if isinstance(model, route.models):
            return route
    names = ", ".join(kind.__name__ for route in ROUTES for kind in route.models)
    raise ModelError(
        f"fit takes models of the classes {names}, and got {type(model).__name__}."
        f" {ways_to_train(model)}"
    )
