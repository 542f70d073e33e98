"""`build`: a model from data and the name of a likelihood.

`choice` has `build`; read it first, then `inside`, which decides by the number of rows.
`likelihoods` has the names of likelihoods, `rows` weights and other numbers of rows, `outputs`
shared latents, `seasons` the kernel of dates, `sparse` chooses inducing points, `kernels` a kernel,
of labels by `label_runs`; `report` prints the choice.
"""

from .choice import NUM_INDUCING, NUM_MEAN_POINTS, build
from .likelihoods import class_likelihood, likelihood_for, num_latents_of
from .report import EXACT_ROWS, FULL_ROWS, can_initialize
from .sparse import default_kernel, sparse_model

__all__ = [
    "EXACT_ROWS", "FULL_ROWS", "NUM_INDUCING", "NUM_MEAN_POINTS", "build", "can_initialize",
    "class_likelihood", "default_kernel", "likelihood_for", "num_latents_of", "sparse_model",
]  # fmt: skip
