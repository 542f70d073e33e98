"""Gram matrices of latent functions at inducing variables and inputs.

Read `latents.py` first: the covariances that a basis needs, for shared and separate kernels and
points, and the place where jitter is added. `residual.py` has the residual kernel given beta;
`stationary.py` the smooth stationary kernels with a hand-written gradient, on the `profiles.py` of
squared distances; `products.py` products with kernel matrices that are never stored, by fused
blocks (`stationary_products.py`, `blocks.py`) or by `strips.py` of rows; `neighbours/` the search
for nearest rows and the covariances of neighbourhoods. `centring.py` moves the origin of inputs to
the data before distances are taken.
"""

__all__: list[str] = []
