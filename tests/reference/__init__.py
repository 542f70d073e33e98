"""Slow, clear numpy versions of the equations, sharing no code with the package."""
