"""The mean on all data: coefficients by conjugate gradients or stochastic dual descent.

For models with a `MeanOnDataBasis`. Read `system.py` first (linear system, preconditioner,
certificate), then `solve_mean.py` (conjugate gradients) and `descent.py` (random rows), with their
result `mean_solution.py`. Users call `mean_optimizer.py` (sites around the solves, with
`row_posterior.py`) as `mean_conjugate_gradients.py` or `mean_dual_descent.py`, and get
`mean_result.py`. `row_features.py` has features of all rows, `neighbour_factors.py` the
preconditioner of neighbours, `evidence.py` bounds of the evidence, `hyperparameters.py` their
ascent.
"""

__all__: list[str] = []
