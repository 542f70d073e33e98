"""Gram matrices at inducing variables and inputs.

Read `latents` first: the covariances of a basis, with jitter. `residual` has the prior given beta,
`stationary` a hand-written gradient for kernels with `profiles`, `array_grams` the same for arrays.
`products` with matrices that are never stored use fused blocks (`stationary_products`, `blocks`) or
`strips` of rows. `neighbours` finds nearest rows, `state_space` has kernels on a line, `centring`
moves the origin to the data, `indices` finds columns that are indices, `shared_and_own` mixes
latents into outputs.
"""

__all__: list[str] = []
