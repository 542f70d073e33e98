"""The lines that `build` prints."""

from __future__ import annotations

__all__ = ["EXACT_ROWS", "FULL_ROWS", "can_initialize", "classes_rows", "report"]

from collections.abc import Sequence

import numpy as np
from gpflow.kernels import MultioutputKernel
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ..models import CVIGP, NNGP, ODVGP, BasisGP
from ..training import NormalScores, Standardized
from ..training.stages.evidence_climb import has_evidence
from .kernels import KernelChoice

FULL_ROWS, EXACT_ROWS = 500, 2000
"""Rows up to which a full GP, at N^3 a step, is no slower than one on inducing points; and up to
which it is the default with Gaussian noise, where L-BFGS needs some 50 evaluations."""


def classes_rows(classes: int) -> int:
    """`FULL_ROWS` for a latent function per class: they cost as much as `FULL_ROWS` of three
    classes.
    """
    return int(FULL_ROWS * min(1.0, 3.0 / classes) ** (1.0 / 3.0))


def can_initialize(model: GPModel) -> bool:
    """True if `fit(initialize="auto")` takes the model: inducing points, Gaussian, one kernel."""
    one_kernel = not isinstance(model.kernel, MultioutputKernel)
    return isinstance(model, BasisGP) and type(model.likelihood) is Gaussian and one_kernel


def _scaled(model: Standardized, given: bool, fixed: bool) -> str:
    if isinstance(model.inputs, NormalScores):
        return "X by its ranks" if model.outputs is None else "X by its ranks, Y standardised"
    inputs = bool(np.any(model.inputs.scale.numpy() != 1.0))
    scaled = [*(["X"] if inputs else []), *(["Y"] if model.outputs is not None else [])]
    said = f"{' and '.join(scaled) or 'nothing'} standardised"
    said += "" if inputs else ", X in its units, which the kernel has too"
    if not given or model.outputs is None:
        return said
    if fixed:
        return said + ", but the noise of your likelihood, which does not train, in units of Y"
    # the user's numbers mean something else than in a model without scales
    return said + ", to which Y the numbers of your likelihood belong"


def _known_noise(model: Standardized) -> list[str]:
    if model.numbers is None or "noise" not in model.numbers.names:
        return []
    return ["predict_y adds the learned noise, and known noise where noise_variance= is passed"]


def _rough(nats: float) -> str:
    return (
        f"kernel Matern 1/2, as Y is rough: some rows have {nats:.0f} nats more evidence for it"
        ' than for Matern 5/2; kernel="auto" compares more'
    )


def _why(inside: GPModel, chosen_points: bool) -> str:
    if has_evidence(inside):
        return (
            f"a full GP, exact for Gaussian noise, trained by L-BFGS: up to {EXACT_ROWS} rows that"
            " takes seconds"
        )
    if isinstance(inside, CVIGP):
        classes = getattr(inside.likelihood, "num_classes", 1)
        return (
            f"a full GP, for up to {classes_rows(classes)} rows, trained by L-BFGS on the bound at"
            " the best sites"
        )
    if isinstance(inside, NNGP):
        few = inside.num_neighbours
        nearest = f"{inside.prediction_neighbours}"
        if inside.chooses_neighbours:
            other = "as many more" if inside.prediction_neighbours == few else "fewer"
            nearest += f", or {other} as leave-one-out asks for at the end of fit"
        return (
            f"learns from random rows given their {few} nearest earlier ones, and predicts from the"
            f" nearest {nearest}"
        )
    if isinstance(inside, ODVGP) and inside.basis.data_mean is not None:
        return (
            "the mean is on all rows, and the covariance on beta, points where the kernel is least"
            " certain"
        )
    if isinstance(inside, ODVGP):
        return (
            "points where the kernel is least certain: beta for mean and covariance, gamma for the"
            " mean alone"
        )
    others = "as asked" if chosen_points else "no rows are left for more of them"
    return (
        "points where the kernel is least certain, for mean and covariance; none for the mean"
        f" alone, {others}"
    )


def report(
    model: Standardized,
    chosen_points: bool,
    choices: Sequence[KernelChoice],
    given: bool,
    fixed: bool,
    rough: float,
) -> str:
    """A few lines on the choice and its reason.

    :param given: the likelihood is an object of the user.
    :param fixed: it has noise that does not train.
    :param rough: nats for the default kernel of rough functions; 0 where that is another one.
    """
    inside = model.model
    rows, columns = model.shape
    data = "frame" if model.table.columns and model.table.targets else "(X, Y)"
    start = ', initialize="auto"' if can_initialize(inside) else ""
    return "\n".join(
        [
            f"{inside!r} of {rows} rows and {columns} column{'s' if columns > 1 else ''}:",
            *filter(None, [str(model.table)]),
            *(f"  {choice}" for choice in choices),
            *([f"  {_rough(rough)};"] if rough else []),
            f"  {_why(inside, chosen_points)};",
            *(f"  {line};" for line in _known_noise(model)),
            (
                f"  {_scaled(model, given, fixed)}, predictions in your units; train it by"
                f" gpflow_decoupled.fit(model, {data}{start})."
            ),
        ]
    )
