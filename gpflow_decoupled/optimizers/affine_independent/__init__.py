"""Affine-independent KL inference: q(w) of w = A v + b with independent, non-normal v (Challis &
Barber 2012).

`affine_ascent` finds q in four steps; read it first. Each step has a file: `gaussian_kl` (the best
Gaussian q), `edgeworth` (the rotation of A and the shapes to start from), `climb_coordinates` and
`affine_objective` (the coordinates and the function of the joint L-BFGS run), `affine_climb` (its
settings), `turns` (the factors of A and the shapes in turns instead). `best_base` compares several
base distributions, and `affine_result` is what a run returns. `jaakkola_jordan` is a separate,
older bound for logit likelihoods, kept as a baseline.
"""

__all__: list[str] = []
