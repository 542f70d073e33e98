"""All routes."""

from __future__ import annotations

__all__ = ["ROUTES", "route_for"]

from gpflow.models import SVGP

from ...errors import ModelError
from ...models.families import ways_to_train
from .full_gps import AffineIndependentRoute, MessagesRoute, MultipliersRoute, SitesRoute
from .inducing import InducingRoute
from .neighbour_sites import NeighbourLabelsRoute, NeighbourSitesRoute
from .neighbours import NeighboursRoute
from .route import Route

ROUTES: tuple[Route, ...] = (
    InducingRoute(),
    SitesRoute(),
    MultipliersRoute(),
    AffineIndependentRoute(),
    NeighboursRoute(),
    NeighbourLabelsRoute(),
    NeighbourSitesRoute(),
    MessagesRoute(),
)


def route_for(model: object) -> Route:
    """Return the model's route."""
    name = "inducing" if isinstance(model, SVGP) else getattr(type(model), "route", None)
    for route in ROUTES:
        if route.name == name:
            return route
    names = ", ".join(kind for route in ROUTES for kind in route.models)
    raise ModelError(
        f"fit takes models of the classes {names}, and got {type(model).__name__}."
        f" {ways_to_train(model)}"
    )
