"""The mean on all data: its coefficients by preconditioned conjugate gradients, to a certified gap.

For models with `OrthogonalBasis(gamma="data", ...)`. Read `system.py` first (the linear system, its preconditioner, and the
certificate), then `solve.py` (conjugate gradients), `optimizer.py` (what users call: sites of any likelihood around the linear
solves) with `moments.py`, `evidence.py` (bounds of the evidence at a given mean) and `hyperparameters.py` (their ascent).
"""

__all__: list[str] = []
