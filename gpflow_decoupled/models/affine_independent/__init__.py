"""Affine-independent KL inference.

Read `gp` (`AffineIndependentGP`) first. `affine_marginals` has densities and quantiles of
predictions, `affine_expectations` integrals of log densities, `weight_priors` sites of non-Gaussian
priors, `single_latent` checks.
"""

__all__: list[str] = []
