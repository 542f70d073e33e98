"""How `fit` trains each family of models: one module for each family, and no other place that knows
them.

`registry.py` looks up the route of a model. `route.py` is the contract: a `Route` names the model
classes and the options that it takes, and makes the step and the batches. `keras.py` drives an
optimizer of Keras. Then, in the order of the table in the docstring of `fit`: `inducing` (natural
gradients, by the step of `inducing_step`), `sites` (conjugate computation), `multipliers`
(Lagrangian), `affine_independent` (ascent of A, b and shapes), `mean_field` (messages on a factor
graph). Read `route.py`, then `sites.py`, which is the simplest whole route.
"""

__all__: list[str] = []
