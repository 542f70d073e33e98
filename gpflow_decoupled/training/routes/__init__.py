"""How `fit` trains each family of models: one module a family, which lists the stages of a run.

`route.py` is the contract: a `Route` names the options that it takes and plans the stages. Then, in
the order of the table in the docstring of `fit`: `inducing` (minibatches), with `lbfgs` (L-BFGS on
all rows after them) and `mean_on_data` (rounds on all rows after them); `sites`; `multipliers`;
`affine_independent`; `neighbours`; `messages` on a factor graph. `checks` and `replicas` refuse
models on inducing points that cannot be trained as asked. Read `route.py`, then `sites.py`, which
is the simplest whole route.

A model names its route by its class attribute `route`, and `registry` lists them all: a new route
is a file here, and a line there.
"""

__all__: list[str] = []
