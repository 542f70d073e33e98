"""Mixtures of Gaussians as q(w), for the models of affine-independent inference.

Read `mixture_ascent` first. `entropy` bounds a mixture's entropy; `mixture_objective` is the bound
of one vector; `mixture_posterior` predicts; `mixture_result` is the result.
"""

__all__: list[str] = []
