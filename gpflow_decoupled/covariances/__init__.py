"""Gram matrices of latent functions at inducing variables and inputs.

Read `latents.py` first: every covariance that a basis needs, with one path for shared and for separate kernels and points,
and the place where jitter is added. `residual.py` has the residual kernel, what inducing points leave of the prior
covariance. `stationary.py` serves `latents.py`: GPflow's smooth stationary kernels with their gradient written out.
"""

__all__: list[str] = []
