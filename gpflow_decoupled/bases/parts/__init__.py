"""Pieces that several bases share.

Read `inducing_gaussian.py` first (q_mu, q_sqrt and their whitening). `kernel_mean.py` is a mean
sum_i k(x, z_i) a_i, `data_mean.py` one on all training inputs, `scaling.py` the coordinates of
coefficients, `mean_operator.py` products for their solvers. `optimum.py` is the best q for Gaussian
noise, `collapsed.py` the bound there; `frame.py` a stream's coordinates, `inverse_root.py` a root
of an inverse, `atomic.py` writes all Parameters or none, `observations.py` checks numbers per
observation.
"""

__all__: list[str] = []
