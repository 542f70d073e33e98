"""Checkpoints from which a killed run goes on to the same trace.

`option.py` has what users write, `run.py` what is saved of a run and how it is read back,
`folder.py` the files: which states there are, how a new one takes its place, and what is left over
after a kill; `lock.py` keeps two runs out of one folder.
"""

from .option import Checkpoints
from .run import RunCheckpoint

__all__ = ["Checkpoints", "RunCheckpoint"]
