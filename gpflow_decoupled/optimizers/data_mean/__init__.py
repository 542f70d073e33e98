"""The mean on all data: its coefficients by preconditioned conjugate gradients, to a certified gap.

For models with `OrthogonalBasis(gamma="data", ...)`. Read `system.py` first (the linear system, its preconditioner, and the
certificate), then `solve.py` (conjugate gradients), `optimizer.py` (what users call: sites of any likelihood around the linear
solves) with `moments.py`, `evidence.py` (bounds of the evidence for the hyperparameters at a given mean) and `ascent.py`.
"""

__all__: list[str] = []
