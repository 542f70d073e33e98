"""What one observation contributes to a bound, as a function of the moments of its latent."""

__all__: list[str] = []
