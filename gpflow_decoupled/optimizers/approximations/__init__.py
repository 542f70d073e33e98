"""Expectation propagation and Laplace's approximation: both fill the sites of a `CVIGP`.

Results also estimate the log evidence. Read `densities`, `laplace_probe`, `laplace_approximation`,
`tilted`, `expectation_propagation`, `evidence_result` in this order.
"""

__all__: list[str] = []
