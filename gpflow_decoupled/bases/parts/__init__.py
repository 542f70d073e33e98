"""What bases are made of."""

__all__: list[str] = []
