"""Affine-independent KL inference (Challis & Barber 2012): w = A v + b, v non-normal.

Read `affine_ascent` first. `gaussian_kl` finds the best Gaussian q, `edgeworth` the initial
rotation and shapes; `climb_coordinates`, `affine_objective` and `affine_climb` make the joint
L-BFGS run, `turns` its alternative; `affine_result` is the result, `jaakkola_jordan` a baseline.
"""

__all__: list[str] = []
