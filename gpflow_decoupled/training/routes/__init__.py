"""How `fit` trains each family of models: one module per family lists the stages of a run.

`route` is the contract. Then, as in the table of `fit`: `inducing` (minibatches), followed by
`lbfgs` or `mean_on_data` (on all rows); `sites`; `multipliers`; `affine_independent`; `neighbours`;
`neighbour_sites`;
`messages`. `checks` and `replicas` refuse models that cannot be trained as asked. A model names its
route by the class attribute `route`, `registry` lists all. Read `route`, then `sites`, the
simplest.
"""

__all__: list[str] = []
