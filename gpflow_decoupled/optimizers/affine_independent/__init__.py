"""Affine-independent KL inference (Challis & Barber 2012)."""

__all__: list[str] = []
