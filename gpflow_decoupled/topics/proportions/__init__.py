"""Posteriors over the topic proportions of documents, one file per family.

`family.py` says what a family must offer. `dirichlet.py` is that of latent Dirichlet allocation;
`gaussian.py` and `logistic_dirichlet.py` are those of the correlated topic model, whose steps
`ascent.py` controls; `lse.py` bounds the expectation of log-sum-exp for `gaussian.py`. Read
`family.py` and `dirichlet.py` first.
"""

__all__: list[str] = []
