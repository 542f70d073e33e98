"""How `fit` trains each family of models: one module per family, which lists the stages of a run.

`route.py` is the contract. Then, as in the table of `fit`: `inducing` (minibatches), followed by
`lbfgs` or `mean_on_data` (on all rows); `sites`; `multipliers`; `affine_independent`; `neighbours`;
`messages` on a factor graph. `checks` and `replicas` refuse models that cannot be trained as asked.
A model names its route by the class attribute `route`; `registry` lists all, so a new route is a
file here and a line there. Read `route.py`, then `sites.py`, the simplest route.
"""

__all__: list[str] = []
