"""The mean on all data: coefficients by conjugate gradients or stochastic dual descent.

For models with a `MeanOnDataBasis`. Read `system` first (linear system, preconditioner,
certificate), then `solve_mean` (conjugate gradients) and `descent` (random rows), with result
`mean_solution`. Users call `mean_optimizer` (solves and sites, with `row_posterior`) as
`mean_conjugate_gradients` or `mean_dual_descent`, and get `mean_result`. `mixed_system` is the
system of outputs that mix latents. `row_features` has features of all rows, `neighbour_factors` a
preconditioner, `evidence` bounds of the evidence, `hyperparameters` their ascent.
"""

__all__: list[str] = []
