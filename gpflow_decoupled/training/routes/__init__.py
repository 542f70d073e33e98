"""How `fit` trains each family of models.

Read the contract `route`, then `sites`, the simplest. Inducing points: `inducing`, with the plans
`minibatches`, `lbfgs` and `mean_on_data` (by a `course`). Models that own their data:
`multipliers`, `affine_independent`, `neighbours`, `neighbour_labels` and `neighbour_sites`, which
share `latent_neighbours`, `messages`. `inducing_checks` and `replicas` refuse models that cannot be
trained as asked; `registry` lists the routes, which models name by the attribute `route`.
"""

__all__: list[str] = []
