"""The stages of a run of `fit`, one module each.

`stage.py` is the contract. On inducing points: `minibatches` (with `several` small steps in a
call), `collapsed_climb` (L-BFGS on all rows), `rounds` and `solve_mean` (a mean on all data). For
models that own their data: `sites`, `evidence_climb` (L-BFGS for Gaussian noise), `multipliers`,
`affine_ascent`, `neighbours`. On a factor graph: `messages`. Read `stage.py`, then `sites.py`.
"""

__all__: list[str] = []
