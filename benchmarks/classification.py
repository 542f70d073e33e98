"""Table 2 of Salimbeni et al. (2018) in small: accuracy and log loss of classifiers, and their average ranks."""

from __future__ import annotations

__all__ = ["EMBEDDED_TASKS", "TASKS", "add_arguments", "run"]

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from .baselines import BASELINES, train_baseline
from .classification_report import Outcome, published, write_report
from .clock import counts_processor_seconds
from .data import Data, load
from .journal import Journal
from .metrics import classification_scores
from .models import Settings, parse
from .ours import train_ours
from .peers import train_gpflow
from .selu_network import train_network

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
)
EMBEDDED_TASKS = ("breast_cancer_sklearn", "digits")
DOUBT = 1e-3
"""Probability that is shared by all classes where a model of another library gives some none, as robust maximum does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", help=f"default: {TASKS}; without --data {EMBEDDED_TASKS}")
    parser.add_argument(
        "--models",
        nargs="+",
        help="FAMILY-M or FAMILY-M+MEAN_POINTS, and -adam: all by Adam; network, which is given the time of the slowest of "
        f"them; {', '.join(BASELINES)}",
    )
    parser.add_argument(
        "--sizes",
        nargs=3,
        type=int,
        default=[100, 233, 133],
        metavar=("M_BETA", "M_GAMMA", "M_COUPLED"),
        help="points of the decoupled models and of the coupled ones, where --models is not given",
    )
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=700, help="of every Gaussian process")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=0.03, help="of Adam")
    parser.add_argument(
        "--natural-gradient", type=float, default=0.05, help="step; its noise grows with step / batch size"
    )
    parser.add_argument(
        "--network-seconds", type=float, help="default: as many as the slowest Gaussian process took; 60 without one"
    )
    parser.add_argument(
        "--network-depths", nargs="+", type=int, default=[2, 3, 4], help="hidden layers; the best of them counts"
    )


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Outcome]:
    """Train every model on every split of every task; write the report after each of them."""
    names = options.models or [*published(*options.sizes), f"gpflow-{options.sizes[2]}-adam", *BASELINES]
    for name in filter(_is_process, names):
        parse(name)  # one that is not known ends the run here
    tasks = options.tasks or (TASKS if options.data else EMBEDDED_TASKS)
    shared = ("steps", "batch_size", "learning_rate", "natural_gradient", "network_seconds", "network_depths", "seed")
    setting = {name: getattr(options, name) for name in shared}
    journal = Journal(folder, "classification", setting, options.resume)
    models = sorted(names, key=lambda name: name == "network")  # last: it needs the others' seconds

    def work(task: str, split: int, model: str) -> dict:
        others = journal.finished([(task, split, name) for name in models if _is_process(name)])
        limit = options.network_seconds or max((one["seconds"] for one in others), default=60.0)
        return _trained(load(task, split, options.data).classes(), split, model, limit, options)._asdict()

    found = journal.collect(
        list(product(tasks, options.splits, models)),
        work,
        lambda rows: write_report([Outcome(**row) for row in rows], options, command, folder),
    )
    return [Outcome(**row) for row in found]


def _is_process(model: str) -> bool:
    return model != "network" and model not in BASELINES


def _trained(data: Data, split: int, model: str, limit: float, options: argparse.Namespace) -> Outcome:
    """:param limit: seconds of the network."""
    start = data.name, split, model, *data.X_train.shape, data.num_classes
    if _is_process(model):
        return Outcome(*start, *_process(data, model, options))
    steps, note = 0, ""
    if model == "network":
        chances, seconds, steps, note = train_network(data, options.network_depths, limit, options.seed)
    else:
        chances, seconds = train_baseline(model, data, options.seed)
    scores = classification_scores(data.Y_test, _doubted(chances))
    return Outcome(*start, scores["accuracy"], scores["log_loss"], float("nan"), seconds, steps, note)


def _process(data: Data, model: str, options: argparse.Namespace) -> tuple:
    """Accuracy, log loss, bound, seconds, steps and note of a Gaussian process."""
    settings = Settings(
        options.batch_size,
        options.learning_rate,
        options.natural_gradient,
        seed=options.seed,
        budgets=(float(options.steps),),
        unit="steps",
    )
    spec = parse(model)
    train = train_gpflow if spec.library == "gpflow" else train_ours
    record = train(spec, data, settings.budgets, settings)
    end = record.snapshots[-1]
    scores = [end.metrics.get(name, float("nan")) for name in ("accuracy", "log_loss", "elbo")]
    seconds = end.cpu_seconds if counts_processor_seconds() else end.seconds
    return *scores, seconds, end.step, record.note


def _doubted(chances: np.ndarray) -> np.ndarray:
    """[N, C] with no zeros."""
    return (1.0 - DOUBT) * chances + DOUBT / chances.shape[1]
