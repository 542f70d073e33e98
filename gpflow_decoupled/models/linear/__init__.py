"""Bayesian generalised linear models p(y | x^T w + b): functions that return one of the models of
this package.

`glm.py` has `CVIGLM` (conjugate computation) and `weights_posterior`, which reads the weights off
any of these models: read it first. `lcl_glm.py` is the same for the Lagrangian, where
`lcl_laplace.py` serves Laplace priors of the weights; `affine_glm.py` is for posteriors that are
not Gaussian. What they share, the prior over the weights as a kernel and a mean function, is in
`../linear_parts.py`.
"""

__all__: list[str] = []
