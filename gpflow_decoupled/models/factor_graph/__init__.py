"""Factor graphs with exponential-family beliefs."""

__all__: list[str] = []
