"""Linear algebra on tensors, without GPflow objects or Parameters.

`triangular` has products and solves with triangular matrices, and `cholesky` the one factorisation
of the package; read these two first. `whitening` differentiates through a factor at low cost.
`gaussians` has divergences and changes of parametrisation, `pivoted` low-rank factors of large
matrices, `woodbury` and `conjugate_gradients` what the solvers share; the others solve with the
sums of matrices that occur in the models.
"""

from .cholesky import Factor, add_jitter, cholesky, diagnose

__all__ = ["Factor", "add_jitter", "cholesky", "diagnose"]
