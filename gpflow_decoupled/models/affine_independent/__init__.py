"""Models with a posterior that is not Gaussian: affine-independent KL inference (Challis & Barber
2012).

`gp` has the model `AffineIndependentGP`; read it first. `affine_marginals` has the densities and
quantiles that its predictions use, `weight_priors` turns priors of weights that are not Gaussian
into sites, and `single_latent` refuses several latent functions. The linear model
`AffineIndependentGLM` is in `models/linear`, the posterior itself (A, b and the shapes) in
`bases/affine_independent`.
"""

__all__: list[str] = []
