"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by its dual variables.

The bound is maximised over mean and variance of each marginal, under linear constraints that tie
them to one Gaussian q(f). Their multipliers alpha and lambda, two per observation and latent,
define the best q. Each outer iteration replaces the bound by a concave subproblem that touches it
from below, and minimises its dual.

Read in this order: `linearly_constrained` (outer iterations); `subproblem`; `dual` (its dual,
gradient, and the bound); `site_maximiser` (the two-dimensional maximisation per observation in the
dual); `newton` and `lbfgs_solve` (minimise the dual); `optimality_newton` (faster steps near the
solution); `first_multipliers` (the start); `lagrangian_result`. Other methods for the same models:
`constraint_subset` with `subset_bound` (multipliers of M observations); for comparison, and for
site losses without a dual, L-BFGS on the bound itself: `opper_archambeau` over the multipliers,
`cholesky_kl` over the mean and a Cholesky factor of the covariance.
"""

__all__: list[str] = []
