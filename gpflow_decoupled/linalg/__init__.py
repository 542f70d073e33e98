"""Linear algebra on tensors.

Read `triangular` and `cholesky` (the only factorisation in graphs) first. `whitening` has cheap
gradients, `gaussians` divergences, `site_posterior` (`dense_sites`) a Gaussian prior times sites,
`pivoted` low-rank factors, `woodbury` and `conjugate_gradients` solvers, `normal_density` LAPACK's
log density, `neighbours` small conditionals, `chain` filter and smoother, `blocks` functions of
rows, `sparse_precision` sparse factors. `coupled`, `coupled_roots`, `newton_systems` and
`class_systems` solve the models' Newton systems.
"""

from .cholesky import CholeskyFactor, add_jitter, cholesky, diagnose

__all__ = ["CholeskyFactor", "add_jitter", "cholesky", "diagnose"]
