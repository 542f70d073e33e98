"""Mixtures of Gaussians as q(w), an alternative to affine-independent inference on its models.

Read `mixture_ascent` first, which finds the mixture. `entropy` has lower bounds of a mixture's
entropy, which has no closed form, and an estimate; `mixture_objective` is the bound as a function
of one vector, for L-BFGS; `mixture_posterior` predicts, and `mixture_result` is the result.
"""

__all__: list[str] = []
