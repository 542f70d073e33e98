"""Likelihoods of class labels with a latent function for each class: `categorical_logit.py`."""

__all__: list[str] = []
