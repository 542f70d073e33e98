"""Integrals against a Gaussian, and against projections of independent variables."""

__all__: list[str] = []
