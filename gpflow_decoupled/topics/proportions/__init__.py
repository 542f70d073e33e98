"""Posteriors of the topic proportions of documents, one file per family.

Read `family.py` (the contract) and `dirichlet.py` (latent Dirichlet allocation) first. The
correlated topic model has `gaussian.py`, with the log-sum-exp bound of `lse.py`, and
`logistic_dirichlet.py`; `ascent.py` controls their steps, and `inverse_wishart.py` is their
covariance prior.
"""

__all__: list[str] = []
