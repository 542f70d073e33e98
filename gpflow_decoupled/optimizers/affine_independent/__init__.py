"""Affine-independent KL inference: q(w) of w = A v + b with independent, non-normal v (Challis &
Barber 2012).

`optimizer` finds q in four steps; read it first. Each step has a file: `gaussian_kl` (the best
Gaussian q), `edgeworth` (the rotation of A and the shapes to start from), `frame` and `objective`
(the coordinates and the function of the joint L-BFGS run), `turns` (the factors of A and the shapes
in turns instead). `best_base` compares several base distributions, and `result` is what a run
returns. `jaakkola_jordan` is a separate, older bound for logit likelihoods, kept as a baseline.
"""

__all__: list[str] = []
