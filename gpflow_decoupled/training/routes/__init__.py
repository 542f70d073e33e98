"""How `fit` trains each family of models."""

__all__: list[str] = []
