"""Training: `fit`, its options and its result.

Read `fit`, then `options` with `schedules`. A model's route (`routes`) makes a plan of `stages`,
which `run` goes through in `turns` and reads `batches`; it returns a `result`. `evaluation`,
`checkpoints` and `keras` have the objects of the options, `snapshots` copies of variables.
`standardized` trains in the `units` of the data by a `standardization`, with `views` of parameters;
`tables` makes arrays of data frames, from their `columns`.
"""

from ..optimizers.start import Start, initialize
from .checkpoints import Checkpoints
from .evaluation import Evaluation, held_out_metrics
from .fit import fit
from .options import Callbacks, TensorBoard
from .result import FitResult
from .schedules import MeanSolver, Schedule
from .standardization import NormalScores, Standardization
from .standardized import Standardized

__all__ = [
    "Callbacks",
    "Checkpoints",
    "Evaluation",
    "FitResult",
    "MeanSolver",
    "NormalScores",
    "Schedule",
    "Standardization",
    "Standardized",
    "Start",
    "TensorBoard",
    "fit",
    "held_out_metrics",
    "initialize",
]


def __dir__() -> list[str]:
    return sorted(__all__)
