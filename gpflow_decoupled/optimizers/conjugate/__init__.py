"""Conjugate-computation variational inference (Khan & Lin 2017)."""

__all__: list[str] = []
