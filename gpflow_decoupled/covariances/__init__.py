"""Gram matrices of latent functions at inducing variables and inputs.

Read `latents.py` first: every covariance that a basis needs, with one path for shared and for
separate kernels and points, and the place where jitter is added. `residual.py` has the residual
kernel, what inducing points leave of the prior covariance. `stationary.py` serves `latents.py`:
GPflow's smooth stationary kernels with their gradient written out. `products.py` has products with
kernel matrices that are never stored: `stationary_products.py` for these kernels, in loops over
blocks (`blocks.py`), and `strips.py` for all others. `profiles.py` has the kernels by squared
distance.
"""

__all__: list[str] = []
