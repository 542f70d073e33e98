"""Expectation propagation and Laplace's approximation of a full GP.

Both fill the sites of a `CVIGP`. They do not maximise the bound: their results have an estimate of
the log evidence, above or below it, beside the bound of their q(f). Read `densities`,
`laplace_approximation`, `tilted`, `expectation_propagation`, `evidence_result` in this order.
"""

__all__: list[str] = []
