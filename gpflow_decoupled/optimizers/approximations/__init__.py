"""Expectation propagation and Laplace's approximation: both fill the sites of a `CVIGP`.

They do not maximise the bound; results also estimate the log evidence. Read `densities`,
`laplace_probe`, `laplace_approximation`, `tilted`, `expectation_propagation`, `evidence_result` in
this order.
"""

__all__: list[str] = []
