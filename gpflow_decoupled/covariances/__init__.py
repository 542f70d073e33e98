"""Gram matrices at inducing variables and inputs.

Read `latents` first: the covariances of a basis, with jitter. `stationary` has fast forms of
GPflow's stationary kernels, `products` products with matrices that are never stored, in the fused
`blocks`. `mixed` has kernels over categories. `neighbours` finds nearest rows, `neighbourhoods` has
their covariances, and `state_space` kernels on a line.
"""

__all__: list[str] = []
