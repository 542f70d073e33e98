"""The mean on all data of a `MeanOnDataBasis`.

Users call `mean_conjugate_gradients` or `mean_dual_descent`, each a `mean_optimizer` of
`mean_settings`, whose `mean_run` has a `mean_result`. Read `system` first (linear system,
preconditioner, certificate; `mixed_system` where outputs mix latents), then the solvers
`solve_mean` and `descent`, with `mean_solution`. `row_features` has features of all rows,
`neighbour_factors` a preconditioner, `row_posterior` moments at all rows, `evidence` bounds,
`hyperparameters` their ascent.
"""

__all__: list[str] = []
