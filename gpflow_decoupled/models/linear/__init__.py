"""Bayesian generalised linear models p(y | x^T w + b): functions that return models.

Read `glm.py` first (`CVIGLM` and `weights_posterior`). `lcl_glm.py` is for the Lagrangian, with
Laplace priors in `lcl_laplace.py`; `affine_glm.py` for non-Gaussian posteriors;
`weights_posterior.py` has the result, `../linear_parts.py` the prior as kernel and mean function.
"""

__all__: list[str] = []
