"""Mixtures of Gaussians as q(w), a rival of affine-independent inference on the same models.

`mixture_ascent` finds the mixture; read it first. `entropy` has lower bounds of the entropy of a
mixture, which has no closed form, and an estimate of it; `mixture_objective` is the bound as a
function of one vector, which L-BFGS climbs; `mixture_posterior` predicts with the mixture, and
`mixture_result` is what a run returns.
"""

__all__: list[str] = []
