"""Fitting of topic models: passes over the documents, which alternate a local step per document
with an update of the topics.

`passes.py` is the loop, over all documents or over minibatches; `local.py` the local step, for any
family of proportions; `shared.py` what all documents share (topics and priors) and its updates;
`history.py` the record and the progress bar. Read them in this order.
"""

__all__: list[str] = []
