"""Conjugate-computation variational inference by Gaussian sites (Khan & Lin 2017).

Read `conjugate_computation` first (`ConjugateComputation`, for `CVIGP`); `site_runs` repeats its
steps on all data or minibatches, `local_expectations` has one observation's contribution,
`site_updates` checks rows and writes sites. `sweep` does the same for inducing points by passes
over data of any size, with `data_passes` and `blocks`. `conjugate_result` is the record of all.
"""

__all__: list[str] = []
