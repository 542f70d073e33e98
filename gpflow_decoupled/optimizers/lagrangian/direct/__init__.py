"""Methods for the same models as the Lagrangian that maximise the bound itself, by L-BFGS.

They find the same q, more slowly, and serve for comparison and for site losses that have no dual.
`opper_archambeau` works with the multipliers alpha and lambda, `cholesky_kl` with the mean and a
Cholesky factor of the covariance. Both start and end as the Lagrangian does: see `lagrangian.start`
and `lagrangian.dual`.
"""

__all__: list[str] = []
