"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by its dual variables.

Read `linearly_constrained` (outer iterations), `subproblem`, `dual`, `site_maximiser` (inside the
dual), `newton` and `lbfgs_solve` (minimise it), `optimality_newton` (near the solution),
`class_newton` (class labels), `first_multipliers`, `lagrangian_result`. `constraint_subset` with
`subset_bound` uses multipliers of M observations; `opper_archambeau` and `cholesky_kl` climb the
bound itself.
"""

__all__: list[str] = []
