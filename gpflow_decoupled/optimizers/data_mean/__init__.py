"""The mean on all data: coefficients by conjugate gradients or stochastic dual descent.

For models with a `MeanOnDataBasis` (gamma="data"). Read `system.py` first (linear system,
preconditioner, certificate), then `solve_mean.py` (conjugate gradients) and `descent.py` (steps on
random rows), with their result `mean_solution.py`. Users call `mean_optimizer.py` (sites of any
likelihood around the linear solves, with `row_posterior.py`) as `mean_conjugate_gradients.py` or
`mean_dual_descent.py`; `mean_result.py` is the result. `row_features.py` has features of all rows,
`evidence.py` bounds of the evidence at a given mean, `hyperparameters.py` their ascent.
"""

__all__: list[str] = []
