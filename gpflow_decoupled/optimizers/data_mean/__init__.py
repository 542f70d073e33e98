"""The mean on all data of a `MeanOnDataBasis`.

Users call the optimizers of `mean_optimizer`. Read `system` first (linear system, preconditioner,
certificate), then the solvers in `solve_mean`; `evidence` has bounds and the ascent of
hyperparameters.
"""

__all__: list[str] = []
