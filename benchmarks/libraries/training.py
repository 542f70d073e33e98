"""Trains a declared model with the library that it belongs to, and says which libraries are
missing.
"""

from __future__ import annotations

__all__ = ["installed", "missing", "train"]

import warnings
from collections.abc import Callable, Iterable, Sequence

from ..harness.data import Data
from ..harness.records import Record
from . import gpboost_vecchia, gpjax, gpytorch_svgp, lightgbm_trees
from .boosted_trees import train_trees
from .gpflow_lbfgs import train_by_lbfgs
from .gpflow_svgp import train_gpflow
from .gpytorch_vnngp import train_vnngp
from .models import NEIGHBOURS, Settings, Spec, parse
from .neighbours import train_neighbours
from .ours import train_ours

Trainer = Callable[[Spec, Data, Sequence[float], Settings], Record]

_TRAINERS: dict[str, Trainer] = {
    "gpflow_decoupled": train_ours,
    "gpflow": train_gpflow,
    "gpytorch": gpytorch_svgp.train_gpytorch,
    "gpjax": gpjax.train_gpjax,
    "gpboost": gpboost_vecchia.train_vecchia,
    "lightgbm": lightgbm_trees.train_lightgbm,
}
_OF_FAMILY: dict[str, Trainer] = {
    "sgpr": train_by_lbfgs,
    "cglb": train_by_lbfgs,
    "gpr": train_by_lbfgs,
    "trees": train_trees,
    NEIGHBOURS: train_neighbours,
    "vnngp": train_vnngp,
}
"""Models that are not trained like the others of their library."""
_MISSING: dict[str, Callable[[], str]] = {
    "gpytorch": gpytorch_svgp.missing,
    "gpjax": gpjax.missing,
    "gpboost": gpboost_vecchia.missing,
    "lightgbm": lightgbm_trees.missing,
}


def train(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train a model until the last of `targets`, and evaluate it afterwards at each of them.

    :param targets: times of training, in units of `settings.unit`.
    :return: the record, with metrics of the test rows and the ELBO at each target.
    :raises RuntimeError: if the library of the model is missing; the message says how to get it.
    """
    if reason := missing(spec.library):
        raise RuntimeError(f"Model {spec.name!r} cannot be trained. {reason}")
    trainer = _OF_FAMILY.get(spec.family) or _TRAINERS[spec.library]
    return trainer(spec, data, targets, settings)


def missing(library: str) -> str:
    """Why a library cannot be used here and how to get it, as a sentence; empty if it can be
    used.
    """
    return _MISSING[library]() if library in _MISSING else ""


def installed(names: Iterable[str]) -> list[str]:
    """Those of the named models whose library can be used here; a warning says what was left
    out.
    """
    models = {name: missing(parse(name).library) for name in names}
    for reason in dict.fromkeys(filter(None, models.values())):
        warnings.warn(f"Models are left out. {reason}", stacklevel=2)
    return [name for name, reason in models.items() if not reason]
