"""Streams: models on inducing points that take in batches without the old data.

Read `stream_memory.py` first: the old data's likelihood factor. `stream_posterior.py` has the best
q for it and the bound, `site_climb.py` the new batch's sites, `learn.py` kernel and likelihood,
`update.py` the functions that models call.
"""

from .stream_memory import StreamMemory
from .update import StreamUpdate, remember, update

__all__ = ["StreamMemory", "StreamUpdate", "remember", "update"]
