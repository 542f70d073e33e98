"""Full GPs with sites: steps, or L-BFGS at the best sites."""

from __future__ import annotations

__all__ = ["SitesRoute", "with_climb", "climb_of"]

from collections.abc import Mapping
from typing import Any

from ...errors import DataError, UnknownOptionError
from ...models import CVIGP, LCLGP, StateSpaceGP
from ...optimizers import ConjugateComputation
from ..batches import Data
from ..options import EVERY, OF_OPTIMIZER, Options
from ..plan import Plan
from ..stages.evidence_climb import EvidenceClimb, has_evidence
from ..stages.site_steps import Sites
from ..stages.sites_climb import SitesClimb, has_best_sites
from ..stages.stage import Stage
from .lbfgs import BY_NAME as LBFGS
from .route import ALL_ROWS, Route, plan_on_own_data, refuse_data

_MOST = 2000
"""Evaluations of the evidence in a run without a limit of steps."""


class SitesRoute(Route):
    """`CVIGP`, also returned by `CVIGLM` for more weights than observations, and `StateSpaceGP`."""

    name = "sites"
    models = ("CVIGP", "StateSpaceGP")
    takes = (
        EVERY
        | OF_OPTIMIZER
        | {"natural_gradient", "hold", "negative_precision", "evaluation", "checkpoint"}
    )
    only = ALL_ROWS
    reasons = {
        "batch_size": (
            "Every step takes all data; for minibatches at fixed hyperparameters use"
            " optimizers.ConjugateComputation(step_size).run(model, batch_size=...)."
        ),
        "seed": "Nothing in a step is random.",
    }
    defaults = {"natural_gradient": 0.5}
    holds = ("sites", "moments")

    def options(self, model: CVIGP, asked: Mapping[str, Any]) -> Options:
        return super().options(model, with_climb(model, asked))

    def plan(self, model: CVIGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        if options.on_all_rows:
            return plan_on_own_data(model, climb_of(model, options), options, None)
        rho, rule = options.natural_gradient, None
        if rho is None and not model.trainable_variables:
            raise DataError(
                "No Parameter of the model is trainable, and natural_gradient=None leaves q(f)"
                " where it is."
            )
        if rho is not None:
            policy = options.negative_precision
            rule = ConjugateComputation(float(rho), negative_precision=policy)
        stage = Sites(model, rule, options.optimizer, options.hold, bool(options.compile))
        return plan_on_own_data(model, stage, options, rho)


def with_climb(model: CVIGP | LCLGP, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were asked for, with `optimizer="lbfgs"` as a climb on all rows.

    A `StateSpaceGP` climbs unless options of steps are asked for.
    """
    idle = {"natural_gradient", "hold", "negative_precision", "learning_rate"} & set(asked)
    can_climb = has_evidence(model) or has_best_sites(model)
    asked = dict(asked)
    if isinstance(model, StateSpaceGP) and can_climb and not idle:
        asked.setdefault("optimizer", LBFGS)
    if not isinstance(asked.get("optimizer"), str) or asked["optimizer"] != LBFGS:
        return asked
    if not can_climb:
        raise UnknownOptionError(
            f"optimizer={LBFGS!r} climbs the bound at the best sites, whose expectations must be no"
            f" samples, and latents no weights; this is {model!r}. Leave `optimizer` out."
        )
    if idle:
        raise UnknownOptionError(
            f"optimizer={LBFGS!r} has no use for {', '.join(sorted(idle))}: the sites are the best"
            " ones, and it chooses its own steps. Leave them out."
        )
    return {**asked, "optimizer": None, "on_all_rows": True}


def climb_of(model: CVIGP | LCLGP, options: Options) -> Stage:
    """L-BFGS on the evidence for Gaussian noise, else on the bound at the best sites."""
    kind = EvidenceClimb if has_evidence(model) else SitesClimb
    return kind(model, options.steps or _MOST, bool(options.compile))
