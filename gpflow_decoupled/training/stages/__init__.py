"""The stages that a run of `fit` may have, one module each.

`stage.py` is the contract: a stage is handed a budget for one turn and returns a report. On
inducing points: `minibatches` (whose small steps `several` takes in one call), `collapsed_climb`
(L-BFGS on all rows at the best q), `rounds` and `solve_mean` (a mean on all data). For models that
own their data: `sites`, `multipliers`, `affine_ascent`, `neighbours`. On a factor graph:
`messages`. Read `stage.py`, then `sites.py`.
"""

__all__: list[str] = []
