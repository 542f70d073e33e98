"""Expectation propagation and Laplace's approximation of a full GP.

Both fill the sites of a `CVIGP`, which predicts as always. They do not maximise the bound: their
results have an estimate of the log evidence, on either side of it, beside the bound of their q(f).

Read `densities` (log density of a label), `laplace_approximation` (mode and curvature), `tilted`
(moments of a Gaussian times a density), `expectation_propagation`, `evidence_result` in this order.
"""

__all__: list[str] = []
