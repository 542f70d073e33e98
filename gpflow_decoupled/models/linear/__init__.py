"""Bayesian generalised linear models."""

__all__: list[str] = []
