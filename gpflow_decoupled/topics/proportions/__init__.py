"""Posteriors over the topic proportions of documents."""

__all__: list[str] = []
