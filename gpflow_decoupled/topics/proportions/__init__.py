"""Posteriors of the topic proportions of documents, one file per family.

Read `family.py` (the contract) and `dirichlet_proportions.py` first. The correlated topic model has
`gaussian_proportions.py`, with the bound of `lse.py`, and `logistic_dirichlet.py`;
`proportions_ascent.py` controls their steps, `inverse_wishart.py` is their covariance prior.
"""

__all__: list[str] = []
