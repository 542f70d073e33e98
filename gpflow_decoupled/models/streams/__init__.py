"""Streams: models on inducing points that take in batches without the old data.

Read `stream_memory.py` first: the old data's Gaussian likelihood factor at the old points.
`stream_posterior.py` has the best q for such a factor, and its bound, `site_climb.py` the steps of
a new batch's sites, `learn.py` the rounds that learn kernel and likelihood, `update.py` the two
functions that models call.
"""

from .stream_memory import StreamMemory
from .update import StreamUpdate, remember, update

__all__ = ["StreamMemory", "StreamUpdate", "remember", "update"]
