"""The linearly constrained Lagrangian (LCL) of Khan 2014.

Read `linearly_constrained` with its outer iterations, `subproblem`, and `dual` with its Newton
steps. `constraint_subset` has multipliers of M observations; `rivals` climb the bound itself.
"""

__all__: list[str] = []
