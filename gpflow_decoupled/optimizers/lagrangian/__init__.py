"""The linearly constrained Lagrangian (LCL) of Khan 2014.

Read `linearly_constrained`, `outer_iterations`, `subproblem`, `dual` with `site_maximiser`, and its
minimisers `newton` and `lbfgs_solve`. `optimality_newton` ends a run; class labels have
`class_newton`. `first_multipliers` is the start, `lagrangian_result` the result.
`constraint_subset` with `subset_bound` has M observations; `opper_archambeau` and `cholesky_kl`
climb the bound itself. `field_dual` serves a `GMRF`.
"""

__all__: list[str] = []
