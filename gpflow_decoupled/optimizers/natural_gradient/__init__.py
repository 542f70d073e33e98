"""Natural gradients of bases with inducing points."""

__all__: list[str] = []
