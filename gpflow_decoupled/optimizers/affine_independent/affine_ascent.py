"""Affine-independent KL inference."""

from __future__ import annotations

__all__ = ["AffineIndependentAscent"]

import time
from typing import NamedTuple

import numpy as np

from ...bases.affine_independent import AffineIndependentBasis
from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.unusable_observation import naming_observation
from ...errors import NumericalError
from ...expectations.site_integrals import Integration, SiteGroup
from ...inputs import check_rate, check_whole
from ...lbfgs import CONVERGED
from ...models.affine_independent.gp import AffineIndependentGP
from ...models.families import require_model
from ...summaries import settings_line
from ..results import Recorder
from .affine_climb import climb
from .affine_objective import as_vector, assign_vector, compiled_objective
from .affine_result import AffineResult, StageRecord, stage_record
from .climb_coordinates import ClimbCoordinates
from .edgeworth import Start, edgeworth_shapes, edgeworth_start
from .gaussian_kl import GaussianProblem, GaussianSolution
from .turns import check_turns, climb_in_turns, turns_of

_LARGEST_CHANGE, _SHARE_OF_TOLERANCE = 1e-6, 1e-2
"""Doubled frequencies may change the bound by these nats, or this share of the tolerance."""
_REFINEMENTS = 2
"""How often the model's frequencies may be doubled."""
_WORTH_COARSENING = 100_000
"""Above this size of a bound, fewer frequencies may save more time than compiling costs."""


class _Climb(NamedTuple):
    bound: float
    """In nats."""
    reason: str
    tracing_seconds: float
    """Seconds until the compiled function had run once."""
    turns: np.ndarray
    """The bound after each turn, in nats; empty without turns."""


class _Joint(NamedTuple):
    elbo: float
    reason: str
    resolution: float
    """Change of the bound with doubled frequencies, in nats."""
    tracing_seconds: float
    turns: np.ndarray


class AffineIndependentAscent:
    """Find q of an `AffineIndependentGP` or `AffineIndependentGLM`, hyperparameters fixed.

    1. The best Gaussian q, the special case of a normal base.
    2. Rotation of A and initial shapes, predicted by an Edgeworth expansion about the Gaussian.
    3. A, b and shapes jointly by L-BFGS, in coordinates that whiten step 1's Gaussian; or in turns
       with `alternate`.
    4. The better of Gaussian and step 3.

    `gpflow.set_trainable(model.basis.theta, False)` fixes the shapes.

    :param tolerance: in nats; a stage ends when six iterations of L-BFGS gain less.
    :param max_evaluations: most evaluations of bound and gradient per stage.
    :param rotate: choose the rotation of A in step 2; False starts at the Gaussian's Cholesky
        factor.
    :param keep_better: return to a normal base if the Gaussian has the greater bound.
    :param alternate: in step 3 maximise over (b, L), (b, U) and shapes in turns; slower, and for
        structure "lu".

    Example::

        model = AffineIndependentGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = AffineIndependentAscent(tolerance=1e-4).run(model)
        print(result.elbo, result.gain)
    """

    def __init__(
        self,
        tolerance: float = 1e-5,
        max_evaluations: int = 2000,
        *,
        rotate: bool = True,
        keep_better: bool = True,
        alternate: bool = False,
    ) -> None:
        check_rate(tolerance=tolerance)
        check_whole(1, max_evaluations=max_evaluations)
        self.tolerance, self.max_evaluations = float(tolerance), int(max_evaluations)
        self.rotate, self.keep_better, self.alternate = rotate, keep_better, alternate

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: AffineIndependentGP) -> AffineResult:
        """Find q and leave the model with it.

        :param model: an `AffineIndependentGP`, or the result of `AffineIndependentGLM`.
        """
        result = self.run_from(model, None)
        warn_of_quadrature(model, result.elbo)
        return result

    def run_from(
        self, model: AffineIndependentGP, sites: tuple[np.ndarray, np.ndarray] | None
    ) -> AffineResult:
        """Run with step 1 done, unless `sites` is None, and without a warning of quadrature.

        :param sites: nu and tau [N] that a `CVIGP` on the same data has at its best Gaussian q.
        """
        require_model("AffineIndependentAscent", model, AffineIndependentGP)
        recorder = Recorder("elbo", "evaluations", "stage")
        basis, groups = model.basis, model.site_groups()
        if self.alternate:
            check_turns(basis)

        # 1) the Gaussian q with the greatest bound
        gaussian, tracing = self._gaussian_stage(model, groups, sites, stage_record(recorder, 0))
        gaussian_seconds = recorder.seconds - tracing

        # 2) the rotation of A, and the gain that it promises
        rotate = self.rotate and basis.map.rotates
        start = edgeworth_start(
            groups, gaussian.b, gaussian.root, basis.base, rotate, basis.non_normal
        )

        # 3) A, b and the shapes together
        try:
            with naming_observation(model):
                joint = self._joint_stage(model, groups, gaussian, start, stage_record(recorder, 1))
        except NumericalError:  # for example a Poisson site under a heavy-tailed base
            if not self.keep_better:
                raise
            joint = _Joint(
                -np.inf,
                "no finite bound with this base distribution",
                float("nan"),
                0.0,
                np.zeros(0),
            )

        # 4) the better of the two
        gaussian_is_kept = self.keep_better and not joint.elbo >= gaussian.bound
        if gaussian_is_kept:
            _assign(basis, gaussian, gaussian.root)
            basis.assign_base("normal")
        return recorder.finish(
            AffineResult,
            gaussian.bound if gaussian_is_kept else joint.elbo,
            joint.reason,
            tracing_seconds=tracing + joint.tracing_seconds,
            gaussian_seconds=gaussian_seconds,
            gaussian_elbo=gaussian.bound,
            affine_elbo=joint.elbo,
            kept="gaussian" if gaussian_is_kept else "affine",
            predicted_gain=start.gain,
            resolution=joint.resolution,
            turns=joint.turns,
        )

    def _gaussian_stage(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        sites: tuple[np.ndarray, np.ndarray] | None,
        record: StageRecord,
    ) -> tuple[GaussianSolution, float]:
        basis = model.basis
        constant = 0.0 if model.weight_priors is None else model.weight_priors.log_volume
        problem = GaussianProblem(
            groups, basis.gaussian, constant, model.integration, compile=sites is None
        )
        if sites is not None:
            dense = problem.at_sites(*sites)
            record(dense.bound, 1)
        else:
            with naming_observation(model, lambda: problem.start_moments(model.data[0].shape[0])):
                dense = problem.solve(self.tolerance, self.max_evaluations, record)
        if basis.structure != "low_rank":
            return dense, problem.tracing_seconds
        # diag(s) + F S^T cannot represent every covariance: run again within the structure, from
        # the dense optimum. Of all its roots the symmetric one is the nearest to the diagonal root
        # of the prior.
        left, values, _ = np.linalg.svd(dense.root)
        _assign(basis, dense, (left * values) @ left.T)
        base, theta = basis.base, basis.theta
        basis.assign_base("normal")
        climbed = self._climb(model, groups, model.integration, None, record)
        coordinates = as_vector(basis.map.trainable_variables)
        found = GaussianSolution(
            basis.b.numpy(), basis.matrix().numpy(), climbed.bound, coordinates
        )
        basis.base, basis.theta = base, theta
        return found, problem.tracing_seconds + climbed.tracing_seconds

    def _joint_stage(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        gaussian: GaussianSolution,
        start: Start,
        record: StageRecord,
    ) -> _Joint:
        basis = model.basis
        # a) the rotated root, and the shapes for its columns in the order in which the structure
        # has them
        _assign(basis, gaussian, start.A)
        if basis.base.num_shapes and basis.theta.trainable:
            A = basis.matrix().numpy()
            basis.theta.assign(
                edgeworth_shapes(groups, gaussian.b, A, basis.base, basis.non_normal)
            )
        allowed = max(_LARGEST_CHANGE, _SHARE_OF_TOLERANCE * self.tolerance)
        # b) no climb if the expansion promises no more
        bound = float(model.bound(groups))
        if abs(start.gain - (bound - gaussian.bound)) < self.tolerance and not self.alternate:
            resolution = abs(float(model.bound(groups, _coarser(model.integration, 2))) - bound)
            if resolution < allowed:
                record(bound, 1)
                return _Joint(bound, CONVERGED, resolution, 0.0, np.zeros(0))
        # c) L-BFGS with as few frequencies as give the same bound here
        integration = _coarsest(model, groups, allowed)
        root = None if gaussian.coordinates is not None else gaussian.root
        finest = model.integration.frequencies << _REFINEMENTS
        tracing = 0.0
        while True:
            climbed = self._climb(model, groups, integration, root, record)
            tracing += climbed.tracing_seconds
            # d) the check where the climb ended, with the model's frequencies or twice the
            # climb's
            check = max(integration.doubled(), model.integration, key=lambda one: one.frequencies)
            finer = float(model.bound(groups, check))
            resolution = abs(finer - climbed.bound)
            if resolution < allowed or integration.frequencies >= finest:
                break
            integration = integration.doubled()
        while model.integration.frequencies < integration.frequencies:
            model.refine()
        return _Joint(finer, climbed.reason, resolution, tracing, climbed.turns)

    def _climb(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        integration: Integration,
        C: np.ndarray | None,
        record: StageRecord,
    ) -> _Climb:
        basis = model.basis
        variables = [
            *basis.map.trainable_variables,
            *basis.b.trainable_variables,
            *basis.theta.trainable_variables,
        ]
        function = compiled_objective(lambda: model.bound(groups, integration), variables)
        began = time.perf_counter()
        function(as_vector(variables))
        tracing = time.perf_counter() - began
        frame = ClimbCoordinates(basis, C, variables)
        moved, start, turns = (
            frame.around(function),
            frame.inward(as_vector(variables)),
            np.zeros(0),
        )
        if self.alternate:
            places = turns_of(basis, variables)
            best, turns, reason = climb_in_turns(
                moved, start, places, record, self.tolerance, self.max_evaluations
            )
            bound = float(turns[-1])
        else:
            best, bound, reason = climb(moved, start, record, self.tolerance, self.max_evaluations)
        assign_vector(variables, frame.outward(best))
        return _Climb(bound, reason, tracing, turns)


def _coarsest(model: AffineIndependentGP, groups: list[SiteGroup], allowed: float) -> Integration:
    full = model.integration
    count = sum(group.features.shape[0] for group in groups) * model.basis.size * full.frequencies
    if model.frequencies_given or count < _WORTH_COARSENING:
        return full
    exact = model.bound(groups, full)
    for part in (4, 2):
        coarse = _coarser(full, part)
        if abs(float(model.bound(groups, coarse) - exact)) < allowed:
            return coarse
    return full


def _coarser(full: Integration, part: int) -> Integration:
    return full._replace(frequencies=full.frequencies // part, points=full.points // part)


def _assign(basis: AffineIndependentBasis, gaussian: GaussianSolution, A: np.ndarray) -> None:
    if gaussian.coordinates is None:
        basis.map.assign_matrix(A)
    else:
        assign_vector(basis.map.trainable_variables, gaussian.coordinates)
    basis.b.assign(gaussian.b)
