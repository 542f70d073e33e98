"""How `fit` trains each family of models: one module for each family, and no other place that knows them.

`route.py` is the contract: a `Route` names the model classes and the options that it takes, and makes the step and the
batches. `keras.py` drives an optimizer of Keras. Then in the order of the table in the docstring of `fit`: `inducing`
(natural gradients), `sites` (conjugate computation), `multipliers` (Lagrangian), `affine_independent` (ascent of A, b and
shapes), `mean_field` (messages on a factor graph). Read `route.py`, then `sites.py`, which is the simplest whole route.
"""

from ...errors import ModelError
from ...models.families import ways_to_train
from .affine_independent import AffineIndependentRoute
from .inducing import InducingRoute
from .mean_field import MeanFieldRoute
from .multipliers import MultipliersRoute
from .route import Route
from .sites import SitesRoute

__all__: list[str] = []

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
    raise ModelError(f"fit takes models of the classes {names}, and got {type(model).__name__}. {ways_to_train(model)}")
