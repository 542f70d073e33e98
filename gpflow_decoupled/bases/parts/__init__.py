"""The pieces that several bases are made of; a basis is easiest read with these at hand.

Read `inducing_gaussian.py` first (the Parameters q_mu and q_sqrt, and whitening them).
`kernel_mean.py` is a mean sum_i k(x, z_i) a_i, `data_mean.py` one on all training inputs,
`scaling.py` the coordinates in which coefficients are learned, `mean_operator.py` products without
derivatives, for steps that solve for the coefficients. `optimum.py` is the best q for Gaussian
noise in closed form, `collapsed.py` the bound there; `frame.py` the coordinates in which a stream
holds the likelihood of old data, `inverse_root.py` a root of an inverse, and `atomic.py` writes all
Parameters or none. `observations.py` serves bases on the data themselves: fixed inputs and numbers
per observation.
"""

__all__: list[str] = []
