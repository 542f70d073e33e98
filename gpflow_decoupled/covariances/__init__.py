"""Gram matrices of latent functions at inducing variables and inputs.

Read `latents.py` first: the covariances that a basis needs, and the place where jitter is added.
`residual.py` has the residual kernel given beta; `stationary.py` smooth stationary kernels with a
hand-written gradient, on the `profiles.py` of squared distances; `products.py` products with
matrices that are never stored, by fused blocks (`stationary_products.py`, `blocks.py`) or by
`strips.py` of rows; `neighbours/` the search for nearest rows. `centring.py` moves the origin of
inputs to the data; `indices.py` says which columns are no amounts.
"""

__all__: list[str] = []
