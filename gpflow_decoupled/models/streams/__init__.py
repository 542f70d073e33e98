"""Streams: models on inducing points that take in batches one after the other, without the old
data.

Read `memory.py` first: what the old data said, a Gaussian factor at the old points. `posterior.py`
has the best q for such a factor and the bound there, `climb.py` the steps of the sites of a new
batch, `update.py` the two functions that models call.
"""

from .memory import StreamMemory
from .update import StreamUpdate, remember, update

__all__ = ["StreamMemory", "StreamUpdate", "remember", "update"]
