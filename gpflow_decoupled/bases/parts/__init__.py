"""Pieces that several bases share.

Read `inducing_gaussian` first (q_mu, q_sqrt and their whitening). `kernel_mean` is a mean sum_i
k(x, z_i) a_i, `data_mean` one on all training inputs, `scaling` the coordinates of coefficients,
`mean_operator` products for their solvers. `optimum` is the best q for Gaussian noise, `collapsed`
the bound there; `frame` a stream's coordinates, `inverse_root` a root of an inverse, `atomic`
writes all Parameters or none, `observations` checks numbers per observation.
"""

__all__: list[str] = []
