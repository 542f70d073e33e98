"""Fitting of topic models: passes of local steps and updates of the topics.

Read `document_passes` (all documents or minibatches), `local` (the local step), `shared` (topics,
priors and their updates) and `history` in this order.
"""

__all__: list[str] = []
