"""Conjugate-computation variational inference by Gaussian sites (Khan & Lin 2017).

Read `conjugate_computation` first. `site_runs` repeats its steps by `local_expectations`,
`site_updates` writes sites, `visited` has the posterior of minibatches, `field_sites` serves a
`GMRF`, `conjugate_result` is the result. `sweep`, with `data_passes` and `blocks`, serves inducing
points.
"""

__all__: list[str] = []
