"""Streams: batches taken in without the old data.

Read `stream_memory` first: the old data's likelihood factor. `stream_posterior` has the best q for
it, `site_climb` the new batch's sites, `learn` kernel and likelihood, `update` the models' calls.
"""

from .stream_memory import StreamMemory
from .update import StreamUpdate, remember, update

__all__ = ["StreamMemory", "StreamUpdate", "remember", "update"]
