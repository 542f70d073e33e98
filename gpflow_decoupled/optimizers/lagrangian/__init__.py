"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by its dual variables.

Read `linearly_constrained`, `outer_iterations`, `subproblem`, `dual` with `site_maximiser`, and its
minimisers `newton` and `lbfgs_solve`. Near the solution `optimality_newton` takes over; class
labels have `class_newton`. `first_multipliers` is the start, `lagrangian_result` the result.
`constraint_subset` with `subset_bound` has M observations; `opper_archambeau` and `cholesky_kl`
climb the bound itself. `field_dual` shows a `GMRF` to them.
"""

__all__: list[str] = []
