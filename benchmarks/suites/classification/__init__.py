"""Table 2 of Salimbeni et al. (2018) in small: accuracy and log loss of classifiers, and their
average ranks.

- `methods`: trains a Gaussian process, a network or one of scikit-learn's classifiers on a split of
  a task;
- `tables`: the paper's Table 2 beside ours, ranks as a picture, a table per data set;
- here: the tasks, the options, and the suite.
"""

from __future__ import annotations

__all__ = ["EMBEDDED_TASKS", "SUITE", "TASKS"]

import argparse
from itertools import product

from ...harness.data import existing_splits
from ...harness.runner import Part, Suite
from ...libraries.models import parse
from ...libraries.scikit_learn import BASELINES
from .methods import NETWORK, Outcome, is_process, measure
from .tables import published, section

TASKS = (
    "adult",
    "mushroom",
    "ringnorm",
    "nursery",
    "chess_krvk",
    "waveform",
    "statlog_shuttle",
    "banana",
    "spambase",
    "waveform_noise",
    "covertype15k",
    "skin",
    "letter",
    "usps",
    "mnist5k",
    "a1a",
    "pima",
    "australian",
    "breast_cancer",
)
EMBEDDED_TASKS = ("breast_cancer_sklearn", "digits")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs="+", help=f"default: {TASKS}; without --data {EMBEDDED_TASKS}"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        help=(
            "FAMILY-M or FAMILY-M+MEAN_POINTS, and -adam: all by Adam; network, which is given the"
            f" time of the slowest of them; {', '.join(BASELINES)}"
        ),
    )
    parser.add_argument(
        "--sizes",
        nargs=3,
        type=int,
        default=[100, 233, 133],
        metavar=("M_BETA", "M_GAMMA", "M_COUPLED"),
        help="points of the decoupled models and of the coupled ones, where --models is not given",
    )
    parser.add_argument(
        "--likelihood",
        choices=["softmax", "robustmax"],
        default="softmax",
        help="for more than two classes: the default of this package, or that of the paper",
    )
    parser.add_argument(
        "--splits",
        nargs="+",
        type=int,
        default=[0],
        help="those that a set does not have are left out",
    )
    parser.add_argument("--steps", type=int, default=700, help="of every Gaussian process")
    parser.add_argument(
        "--seconds", type=float, help="of training of every Gaussian process, in the place of steps"
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=0.03, help="of Adam")
    parser.add_argument(
        "--natural-gradient",
        type=float,
        default=0.05,
        help="step; its noise grows with step / batch size",
    )
    parser.add_argument(
        "--float32", action="store_true", help="our models in float32; GPflow stays in float64"
    )
    parser.add_argument(
        "--network-seconds",
        type=float,
        help="default: as many as the slowest Gaussian process took; 60 without one",
    )
    parser.add_argument(
        "--network-depths",
        nargs="+",
        type=int,
        default=[2, 3, 4],
        help="hidden layers; the best of them counts",
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """(task, split, model) of existing splits; the network comes last, because its time is that of
    the others.
    """
    names = options.models or [
        *published(*options.sizes),
        f"gpflow-{options.sizes[2]}-adam",
        *BASELINES,
    ]
    for name in filter(is_process, names):
        parse(name)  # a name that is not known ends the run here
    tasks = options.tasks or (TASKS if options.data else EMBEDDED_TASKS)
    names = sorted(names, key=lambda name: name == NETWORK)
    return [
        piece
        for task in tasks
        for piece in product([task], existing_splits(task, options.splits, options.data), names)
    ]


SUITE = Suite(
    "Classification: Table 2 of Salimbeni et al. (2018) in small",
    {"classification": Part(Outcome, _pieces, measure, section, uses_earlier=True)},
    _add_arguments,
    selecting=("tasks", "splits", "models", "sizes"),
)
