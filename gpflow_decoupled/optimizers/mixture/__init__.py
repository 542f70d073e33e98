"""Mixtures of Gaussians as q(w).

Read `mixture_ascent` first. `entropy` bounds a mixture's entropy; `mixture_objective` is the bound
of one vector; `mixture_posterior` predicts; `mixture_result` is the result.
"""

__all__: list[str] = []
