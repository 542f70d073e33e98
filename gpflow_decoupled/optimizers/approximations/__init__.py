"""Expectation propagation and Laplace's approximation of a full GP, which fill the same sites as
conjugate computation.

Both leave a `CVIGP` with one Gaussian site per observation, so that predictions, posteriors and
samples are those of the model as always. What they maximise or match is not the bound: their
results have an estimate of the log evidence, which may lie on either side of it, beside the bound
of the q(f) that they found.

Read in this order: `densities` (the log density of a label as a function of its latent value);
`laplace_approximation` (the mode, and the curvature there); `tilted` (moments of a Gaussian times a
density) and `expectation_propagation`; `evidence_result`.
"""

__all__: list[str] = []
