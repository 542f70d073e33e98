"""Linear algebra on tensors.

Read `cholesky` first, the only place that factorises or adds jitter, then `triangular` solves and
products. `whitening` has cheap gradients, `site_posterior` a Gaussian prior times sites,
`conjugate_gradients` iterative solvers and their preconditioners, `neighbours` small conditionals,
`chain` filter and smoother, `sparse_precision` sparse factors, `newton_systems` the Newton systems
of the Lagrangian.
"""

from .cholesky import CholeskyFactor, add_jitter, cholesky, diagnose

__all__ = ["CholeskyFactor", "add_jitter", "cholesky", "diagnose"]
