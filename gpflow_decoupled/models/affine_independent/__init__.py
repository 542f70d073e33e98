"""Models with a non-Gaussian posterior."""

__all__: list[str] = []
