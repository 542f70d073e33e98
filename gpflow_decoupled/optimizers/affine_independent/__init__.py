"""Affine-independent KL inference (Challis & Barber 2012).

Read `affine_ascent` first. `gaussian_kl` finds the best Gaussian q, `edgeworth` the initial
rotation and shapes; `climb_coordinates`, `affine_objective` and `affine_climb` make the joint run,
`turns` its alternative; see also `affine_result` and `jaakkola_jordan`.
"""

__all__: list[str] = []
