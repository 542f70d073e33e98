"""Posteriors of topic proportions.

Read the contract `family` and `dirichlet_proportions` first. The correlated topic model has
`gaussian_proportions`, with the bound of `lse`, and `logistic_dirichlet`; `proportions_ascent`
controls their steps, `inverse_wishart` is their covariance prior.
"""

__all__: list[str] = []
