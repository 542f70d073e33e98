"""The stages of a run of `fit`, one module each.

Read the contract `stage`, then `site_steps`. Inducing points: `minibatches`, `collapsed_climb`,
`rounds`, `solve_mean`. Models that own their data: `evidence_climb`, `multipliers`,
`affine_ascent`, `affine_climb`, `neighbours` (L-BFGS), `neighbour_steps` (minibatches),
`mean_of_rows`, `neighbour_labels`, `neighbour_sites`, `sites_climb` (with `site_priors`),
`messages`.
"""

__all__: list[str] = []
