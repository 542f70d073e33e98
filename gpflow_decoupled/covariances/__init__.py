"""Gram matrices of latent functions at inducing variables and inputs.

Read `latents` first: the covariances that a basis needs, and the place where jitter is added.
`residual` has the residual kernel given beta; `stationary` smooth stationary kernels with a
hand-written gradient, by their `profiles`, and `array_grams` the same for arrays, without graphs;
`products` products with matrices that are never stored, by fused blocks (`stationary_products`,
`blocks`) or by `strips` of rows; `neighbours` the search for nearest rows. `centring` moves the
origin of inputs to the data; `indices` finds columns that are indices.
"""

__all__: list[str] = []
