"""Linear algebra on tensors, without GPflow objects or Parameters.

Read `triangular` and `cholesky` (the only factorisation in graphs) first. `whitening`
differentiates cheaply through a factor, `gaussians` has divergences and parametrisations, `sites` a
Gaussian prior times sites, `pivoted` low-rank factors, `woodbury` and `conjugate_gradients` generic
solvers, `normal_density` a log density with its gradient by LAPACK, `neighbours` many small
conditionals at once, `blocks` functions of rows by blocks.
`coupled`, `coupled_roots` and `newton_systems` solve the Newton systems of the models.
"""

from .cholesky import CholeskyFactor, add_jitter, cholesky, diagnose

__all__ = ["CholeskyFactor", "add_jitter", "cholesky", "diagnose"]
