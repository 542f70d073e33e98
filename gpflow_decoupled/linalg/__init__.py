"""Linear algebra on tensors, without GPflow objects or Parameters.

Read `triangular` (products and solves with triangular matrices) and `cholesky` (the only
factorisation of the package) first. `whitening` differentiates cheaply through a factor,
`gaussians` has divergences and changes of parametrisation, `sites` the posterior of a Gaussian
prior times Gaussian sites, `pivoted` low-rank factors of large matrices, `woodbury` and
`conjugate_gradients` generic solvers, `neighbours` conditionals of many small problems at once,
`blocks` functions of rows by blocks. `coupled`, `coupled_roots` and `newton_systems` solve the
Newton systems of the models.
"""

from .cholesky import CholeskyFactor, add_jitter, cholesky, diagnose

__all__ = ["CholeskyFactor", "add_jitter", "cholesky", "diagnose"]
