"""Fitting of topic models: passes of local steps and updates of the topics.

Read `document_passes.py` (all documents or minibatches), `local.py` (the local step), `shared.py`
(topics, priors and their updates) and `history.py` in this order.
"""

__all__: list[str] = []
