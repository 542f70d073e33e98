"""The stages of a run of `fit`, one module each.

`stage` is the contract. On inducing points: `minibatches` (with `several` small steps in a call),
`collapsed_climb` (L-BFGS on all rows), `rounds` and `solve_mean` (a mean on all data). For models
that own their data: `sites`, `evidence_climb` (L-BFGS for Gaussian noise), `multipliers`,
`affine_ascent`, `neighbours`, `neighbour_sites`, `messages`. Read `stage`, then `sites`.
"""

__all__: list[str] = []
