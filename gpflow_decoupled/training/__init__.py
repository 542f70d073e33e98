"""Training: `fit`, its options and its result.

`fit` looks up the model's route (`routes`) and checks the `options`. The route makes a `plan`:
`stages` in order, and the `batches` they read. `run` is the loop, with `beginning`, `turns`,
`snapshots`, `scores`, `workers` and the `result`. `schedules`, `evaluation`, `checkpoints`,
`progress` and `keras` have the objects of the options. `standardized` trains in the units of the
data, by a `standardization` or the `normal_scores` of X (`scaled_build`, `units`); `tables` makes
arrays of data frames, `row_numbers` has weights. Read `fit`, `stages/stage`, `plan`, `run`, then a
route.
"""

from ..optimizers.start import Start, initialize
from .checkpoints import Checkpoints
from .evaluation import Evaluation, held_out_metrics
from .fit import fit
from .normal_scores import NormalScores
from .progress import Callbacks, TensorBoard
from .result import FitResult
from .schedules import MeanSolver, Schedule
from .standardization import Standardization
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
