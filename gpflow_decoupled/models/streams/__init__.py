"""Streams: models on inducing points that take in batches one after the other, without the old
data.

Read `stream_memory.py` first: what the old data said, a Gaussian factor at the old points.
`stream_posterior.py` has the best q for such a factor and the bound there, `site_climb.py` the
steps of the sites of a new batch, `learn.py` the rounds that learn kernel and likelihood,
`update.py` the two functions that models call.
"""

from .stream_memory import StreamMemory
from .update import StreamUpdate, remember, update

__all__ = ["StreamMemory", "StreamUpdate", "remember", "update"]
