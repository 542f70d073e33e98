"""Fitting of topic models.

Read `document_passes`, `local` (the local step), `shared` (topics and priors) and `history` in this
order.
"""

__all__: list[str] = []
