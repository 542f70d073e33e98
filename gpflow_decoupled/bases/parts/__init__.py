"""Pieces that several bases share.

Read `inducing_gaussian.py` first (the Parameters q_mu and q_sqrt, and their whitening).
`kernel_mean.py` is a mean sum_i k(x, z_i) a_i, `data_mean.py` one on all training inputs,
`scaling.py` the coordinates of coefficients, `mean_operator.py` products for solvers of
coefficients. `optimum.py` is the best q for Gaussian noise in closed form, `collapsed.py` the bound
there; `frame.py` a stream's coordinates of old data's likelihood, `inverse_root.py` a root of an
inverse; `atomic.py` writes all Parameters or none. `observations.py` is for bases on the data:
fixed inputs and numbers per observation.
"""

__all__: list[str] = []
