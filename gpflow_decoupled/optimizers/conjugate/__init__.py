"""Conjugate-computation variational inference, by Gaussian sites for the observations (Khan & Lin
2017).

`conjugate_computation` has `ConjugateComputation`, for a full GP (`CVIGP`), and is where to begin;
`site_runs` repeats its steps on all data or on minibatches, `local_expectations` computes what one
observation contributes, and `site_updates` checks the rows of a minibatch and writes sites. `sweep`
does the same for inducing points by passes over data of any size; `data_passes` is what one pass
computes, and `blocks` reads the data. `conjugate_result` has the record of all these runs.
"""

__all__: list[str] = []
