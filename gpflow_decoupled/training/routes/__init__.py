"""How `fit` trains each family of models.

Read the contract `route`, then `full_gps`, the simplest. `minibatches` and `inducing` serve models
on inducing points, `neighbours` and `neighbour_sites` nearest-neighbour GPs; `registry` lists the
routes, which models name by the attribute `route`.
"""

__all__: list[str] = []
