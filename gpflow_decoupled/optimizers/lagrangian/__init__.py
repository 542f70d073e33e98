"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by its dual variables.

The bound is maximised over mean and variance of each marginal, under linear constraints that tie
them to one Gaussian q(f), with multipliers alpha and lambda per observation and latent. Each outer
iteration minimises the dual of a concave subproblem that touches the bound from below.

Read `linearly_constrained` (outer iterations), `subproblem`, `dual`, `site_maximiser` (inside the
dual), `newton` and `lbfgs_solve` (minimise it), `optimality_newton` (near the solution),
`first_multipliers`, `lagrangian_result`. `constraint_subset` with `subset_bound` uses multipliers
of M observations. L-BFGS on the bound itself: `opper_archambeau` over the multipliers,
`cholesky_kl` over mean and Cholesky factor.
"""

__all__: list[str] = []
