"""Training: `fit`, the objects that its options are made of, and its result.

`fit.py` looks up the route of the model, checks the options and starts the run. `options.py` is the
table of all options; `schedules`, `mean_solver`, `evaluation`, `checkpoints/`, `progress` and
`keras` have their objects. `routes/` has one module for each family of models, which makes a
`plan.py`: stages in order, from `stages/`, and the `batches/` they read. `run.py` is the loop over
the stages; it takes `turns`, goes back to `snapshots` where one fails, keeps `scores`, and speaks
with other `workers`. `beginning.py` asks `diagnostics` before the first step. `result.py` is the
record of a run. `standardized.py` trains and predicts in the units of the data, by a
`standardization` of each array; `tables/` makes arrays of data frames. Read `fit.py`,
`stages/stage.py`, `plan.py`, `run.py`, then a route and its stages.
"""

from ..diagnostics import Start, initialize
from .checkpoints import Checkpoints
from .evaluation import Evaluation, held_out_metrics
from .fit import fit
from .mean_solver import MeanSolver
from .progress import Callbacks, TensorBoard
from .result import FitResult
from .schedules import Schedule
from .standardization import Standardization
from .standardized import Standardized

__all__ = [
    "Callbacks",
    "Checkpoints",
    "Evaluation",
    "FitResult",
    "MeanSolver",
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
