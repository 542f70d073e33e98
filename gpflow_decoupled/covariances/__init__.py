"""Gram matrices of latent functions at inducing variables and inputs."""

__all__: list[str] = []
