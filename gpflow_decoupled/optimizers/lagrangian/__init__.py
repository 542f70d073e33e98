"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by its dual variables.

The bound is maximised over mean and variance of each marginal, under linear constraints that tie
them to one Gaussian q(f). Their multipliers alpha and lambda, two per observation and latent,
define the best q. Each outer iteration replaces the bound by a concave subproblem that touches it
from below, and minimises its dual.

Read in this order: `linearly_constrained` (outer iterations), `subproblem`, `dual`,
`site_maximiser` (inside the dual), `newton` and `lbfgs_solve` (minimise it), `optimality_newton`
(near the solution), `first_multipliers` (the start), `lagrangian_result`. `constraint_subset` with
`subset_bound` uses multipliers of M observations. L-BFGS on the bound itself, for comparison and
for site losses without a dual: `opper_archambeau` over the multipliers, `cholesky_kl` over mean and
Cholesky factor.
"""

__all__: list[str] = []
