"""The linearly constrained Lagrangian (LCL) of Khan 2014: q of a full GP by two multipliers per
observation and latent.

The bound is maximised over mean and variance of each marginal, under linear constraints that tie
them to one Gaussian q(f). Their multipliers alpha and lambda describe the best q. Each outer
iteration replaces the bound by a concave subproblem that touches it from below, and minimises its
dual over the multipliers.

Read in this order: `linearly_constrained` (the outer iterations); `subproblem` (how a subproblem is
made), `dual` (its dual, the gradient, and the bound); `site_maximiser` (the two-dimensional
maximisation per observation inside the dual); `newton` and `lbfgs_solve` (two ways to minimise the
dual); `optimality_newton` (faster steps near the solution); `first_multipliers` (where a run
starts); `lagrangian_result` (what it returns). Other methods for the same models:
`constraint_subset` with `subset_bound` (multipliers of M observations only), and two that maximise
the bound itself by L-BFGS, more slowly, for comparison and for site losses that have no dual:
`opper_archambeau` by the multipliers, `cholesky_kl` by the mean and a Cholesky factor of the
covariance.
"""

__all__: list[str] = []
