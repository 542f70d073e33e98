"""The mean on all data: its coefficients by conjugate gradients or stochastic dual descent, and how
good they are.

For models with a `MeanOnDataBasis`, for example `ODVGP(kernel, likelihood, "data", beta)`. Read
`system.py` first (the linear system, its preconditioner with `row_features.py`, and the
certificate), then its solvers: `solve_mean.py` (conjugate gradients) and `descent.py` (steps on
random rows), with what both return in `mean_solution.py`, and a run in `mean_result.py`.
`mean_optimizer.py` is what users call, sites of any likelihood around the linear solves, with
`row_posterior.py`; `mean_conjugate_gradients.py` and `mean_dual_descent.py` are its two kinds, with
their settings. `evidence.py` has bounds of the evidence at a given mean and `hyperparameters.py`
their ascent.
"""

__all__: list[str] = []
