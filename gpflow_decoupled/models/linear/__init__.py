"""Bayesian generalised linear models p(y | x^T w + b).

Read `glm` first (`CVIGLM`). `lcl_glm` is for the Lagrangian, with Laplace priors in `lcl_laplace`;
`affine_glm` for non-Gaussian posteriors; `weights_posterior` has the result.
"""

__all__: list[str] = []
