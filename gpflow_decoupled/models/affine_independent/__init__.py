"""Non-Gaussian posteriors: affine-independent KL inference (Challis & Barber 2012).

Read `gp` (`AffineIndependentGP`) first. `affine_marginals` has densities and quantiles for
predictions, `affine_expectations` integrates log densities at any accuracy, `weight_priors` makes
sites of non-Gaussian priors, `single_latent` refuses several latents. `models/linear` has
`AffineIndependentGLM`, `bases/affine_independent` the posterior.
"""

__all__: list[str] = []
