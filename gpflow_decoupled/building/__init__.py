"""`build`: a model from data and the name of a likelihood.

Read `choice` first, which has `build`, then `inside`, which decides by the number of rows.
`kernels` compares kernels by left-out rows, `likelihoods` finds likelihoods by name.
"""

from .choice import NUM_INDUCING, NUM_MEAN_POINTS, build
from .inside import EXACT_ROWS, FULL_ROWS, can_initialize, default_kernel, sparse_model
from .likelihoods import class_likelihood, likelihood_for, num_latents_of

__all__ = [
    "EXACT_ROWS", "FULL_ROWS", "NUM_INDUCING", "NUM_MEAN_POINTS", "build", "can_initialize",
    "class_likelihood", "default_kernel", "likelihood_for", "num_latents_of", "sparse_model",
]  # fmt: skip
