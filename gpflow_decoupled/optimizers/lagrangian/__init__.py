"""Decoupled variational Gaussian inference by a Lagrangian (Khan 2014), and its rivals."""

__all__: list[str] = []
