"""Bayesian generalised linear models p(y | x^T w + b): functions that return models.

Read `glm.py` first (`CVIGLM`, and `weights_posterior`, which reads the weights off any of them, as
`weights_posterior.py` defines). `lcl_glm.py` is for the Lagrangian, with Laplace priors in
`lcl_laplace.py`; `affine_glm.py` for non-Gaussian posteriors. `../linear_parts.py` has the prior as
kernel and mean function.
"""

__all__: list[str] = []
