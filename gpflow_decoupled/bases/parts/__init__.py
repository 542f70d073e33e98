"""Pieces that several bases share.

Read `inducing_gaussian` first (q_mu, q_sqrt and their whitening). `kernel_mean` and `data_mean` are
means, `scaling` the coordinates of their coefficients, `mean_operator` products for solvers.
`optimum` is the best q for Gaussian noise, `collapsed` the bound there; `frame` a stream's
coordinates, `inverse_root` a root of an inverse, `atomic` writes all Parameters or none,
`observations` checks numbers per observation.
"""

__all__: list[str] = []
