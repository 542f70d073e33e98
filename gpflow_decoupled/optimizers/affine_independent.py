"""Affine-independent KL inference."""

from __future__ import annotations

__all__ = [
    "AffineIndependentAscent", "ClimbCoordinates", "as_vector", "assign_vector",
    "climb_in_turns", "compiled_objective", "turns_of",
]  # fmt: skip

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ..bases.affine_independent import AffineIndependentBasis, LUMap
from ..compilation import Compiled
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import naming_observation
from ..errors import DataError, NumericalError
from ..expectations.fourier import Integration, SiteGroup
from ..inputs import check_rate, check_whole
from ..lbfgs import CONVERGED, Objective
from ..models.affine_independent import AffineIndependentGP
from ..models.families import require_model
from ..probability import tfp
from ..summaries import settings_line
from .affine_start import (
    AffineResult,
    GaussianProblem,
    GaussianSolution,
    StageRecord,
    Start,
    climb,
    edgeworth_shapes,
    edgeworth_start,
    stage_record,
)
from .ascent import Recorder

# ---
# The bound of one vector, in coordinates that whiten the Gaussian optimum.


def compiled_objective(
    bound: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> Objective:
    """Return x [n] -> (bound, gradient) after writing x to `variables`."""

    def value_and_gradient() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = bound()
        gradients = tape.gradient(
            value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return value, Scipy.pack_tensors(gradients)

    graph = Compiled(value_and_gradient)

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        assign_vector(variables, x)
        value, gradient = graph()
        return float(value), gradient.numpy().astype(np.float64)

    return function


def as_vector(variables: Sequence[tf.Variable]) -> np.ndarray:
    """Pack the variables into one vector [n]."""
    return Scipy.pack_tensors(variables).numpy().astype(np.float64)


def assign_vector(variables: Sequence[tf.Variable], x: np.ndarray) -> None:
    """Write a vector [n] to the variables."""
    Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, x))


class ClimbCoordinates:
    """Coordinates A = C A~, b = C b~ of the vector [n] of all variables of q.

    With C [D, D] a lower root of the Gaussian covariance, curvatures are similar in all directions.
    """

    def __init__(
        self, basis: AffineIndependentBasis, C: np.ndarray, variables: list[tf.Variable]
    ) -> None:
        self.C, self.variables = C, variables
        self.left = next(iter(basis.map.trainable_variables), None)
        self.b = basis.b.unconstrained_variable

    def _multiply(self, M: np.ndarray, x: np.ndarray) -> np.ndarray:
        ends = np.cumsum([int(np.prod(variable.shape)) for variable in self.variables])[:-1]
        parts = np.split(x, ends)
        for i, variable in enumerate(self.variables):
            if variable is self.b:
                parts[i] = M @ parts[i]
            elif variable is self.left and parts[i].size == M.size:
                parts[i] = (M @ parts[i].reshape(M.shape)).ravel()
            elif variable is self.left:  # L of L U, a vector of its D (D + 1) / 2 entries
                product = M @ tfp.math.fill_triangular(parts[i]).numpy()
                parts[i] = tfp.math.fill_triangular_inverse(np.tril(product)).numpy()
        return np.concatenate(parts)

    def inward(self, x: np.ndarray) -> np.ndarray:
        """Map variables (A, b) to coordinates (A~, b~), [n] each."""
        return self._multiply(np.linalg.inv(self.C), x)

    def outward(self, x: np.ndarray) -> np.ndarray:
        """Map coordinates (A~, b~) to variables (A, b), [n] each."""
        return self._multiply(self.C, x)

    def around(self, function: Objective) -> Objective:
        """Return the function of the coordinates; its gradient is multiplied by C^T."""

        def moved(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = function(self.outward(x))
            return value, self._multiply(self.C.T, gradient)

        return moved


# ---
# The ascent in turns for A = L U (A20).


def turns_of(basis: AffineIndependentBasis, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
    """Return the places of (b, L), (b, U) and the shapes in the vector of `variables`."""
    ends = np.cumsum([0, *(int(np.prod(variable.shape)) for variable in variables)])
    found = {v.ref(): np.arange(*pair) for v, pair in zip(variables, zip(ends, ends[1:]))}
    L, U, b, theta = (
        found.get(part.unconstrained_variable.ref(), np.zeros(0, int))
        for part in (basis.map.L, basis.map.U_transposed, basis.b, basis.theta)
    )
    turns = np.concatenate([b, L]), np.concatenate([b, U]), theta  # (A20)
    return [turn for turn in turns if len(turn)]


def climb_in_turns(
    function: Objective,
    start: np.ndarray,
    turns: Sequence[np.ndarray],
    record: StageRecord,
    tolerance: float,
    max_evaluations: int,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Climb from `start` [n]; return the best point [n], the value after each turn, the reason.

    :param turns: the coordinates that each turn of a round moves.
    """
    x, bounds, done = start.copy(), [-np.inf], 0

    def counted(value: float, evaluations: int) -> None:
        nonlocal done
        done += evaluations
        record(value, evaluations)

    while True:
        for places in turns:
            point = x.copy()

            def of_part(
                part: np.ndarray, point: np.ndarray = point, places: np.ndarray = places
            ) -> tuple[float, np.ndarray]:
                point[places] = part
                value, gradient = function(point)
                return value, gradient[places]

            left = max_evaluations - done
            x[places], value, reason = climb(of_part, x[places], counted, tolerance, left)
            bounds.append(value)
            if reason != CONVERGED:
                return x, np.array(bounds[1:]), reason
        if bounds[-1] - bounds[-1 - len(turns)] < tolerance:
            return x, np.array(bounds[1:]), CONVERGED


# ---


_LARGEST_CHANGE, _SHARE_OF_TOLERANCE = 1e-6, 1e-2
"""Doubled frequencies may change the bound by these nats, or this share of the tolerance."""
_REFINEMENTS = 2
"""How often the model's frequencies may be doubled."""
_WORTH_COARSENING = 100_000
"""Above this size of a bound, fewer frequencies may save more time than compiling costs."""


class _Joint(NamedTuple):
    """End of the climb over A, b and shapes; fields as in `AffineResult`."""

    elbo: float
    reason: str
    resolution: float = float("nan")
    tracing_seconds: float = 0.0
    turns: np.ndarray = np.zeros(0)


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
        if self.alternate and not isinstance(basis.map, LUMap):
            raise DataError(
                f"alternate=True needs A = L U, and the structure of A is '{basis.structure}':"
                " build the model with structure='lu', or leave out alternate."
            )

        # 1) the Gaussian q with the greatest bound
        constant = 0.0 if model.weight_priors is None else model.weight_priors.log_volume
        problem = GaussianProblem(
            groups, basis.gaussian, constant, model.integration, compile=sites is None
        )
        record = stage_record(recorder, 0)
        if sites is not None:
            gaussian = problem.at_sites(*sites)
            record(gaussian.bound, 1)
        else:
            with naming_observation(model, lambda: problem.start_moments(model.data[0].shape[0])):
                gaussian = problem.solve(self.tolerance, self.max_evaluations, record)
        gaussian_seconds = recorder.seconds - problem.tracing_seconds

        # 2) the rotation of A, and the gain that it promises
        start = edgeworth_start(
            groups, gaussian.b, gaussian.root, basis.base, self.rotate, basis.non_normal
        )

        # 3) A, b and the shapes together
        try:
            with naming_observation(model):
                joint = self._joint_stage(model, groups, gaussian, start, stage_record(recorder, 1))
        except NumericalError:  # for example a Poisson site under a heavy-tailed base
            if not self.keep_better:
                raise
            joint = _Joint(-np.inf, "no finite bound with this base distribution")

        # 4) the better of the two
        gaussian_is_kept = self.keep_better and not joint.elbo >= gaussian.bound
        if gaussian_is_kept:
            basis.map.assign_matrix(gaussian.root)
            basis.b.assign(gaussian.b)
            basis.assign_base("normal")
        return recorder.finish(
            AffineResult,
            gaussian.bound if gaussian_is_kept else joint.elbo,
            joint.reason,
            tracing_seconds=problem.tracing_seconds + joint.tracing_seconds,
            gaussian_seconds=gaussian_seconds,
            gaussian_elbo=gaussian.bound,
            affine_elbo=joint.elbo,
            kept="gaussian" if gaussian_is_kept else "affine",
            predicted_gain=start.gain,
            resolution=joint.resolution,
            turns=joint.turns,
        )

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
        basis.map.assign_matrix(start.A)
        basis.b.assign(gaussian.b)
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
                return _Joint(bound, CONVERGED, resolution)
        # c) L-BFGS with as few frequencies as give the same bound here
        integration = _coarsest(model, groups, allowed)
        finest = model.integration.frequencies << _REFINEMENTS
        tracing = 0.0
        while True:
            climbed, turns, reason, seconds = self._climb(
                model, groups, integration, gaussian.root, record
            )
            tracing += seconds
            # d) the check where the climb ended, with the model's frequencies or twice the
            # climb's
            check = max(integration.doubled(), model.integration, key=lambda one: one.frequencies)
            finer = float(model.bound(groups, check))
            resolution = abs(finer - climbed)
            if resolution < allowed or integration.frequencies >= finest:
                break
            integration = integration.doubled()
        while model.integration.frequencies < integration.frequencies:
            model.refine()
        return _Joint(finer, reason, resolution, tracing, turns)

    def _climb(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        integration: Integration,
        C: np.ndarray,
        record: StageRecord,
    ) -> tuple[float, np.ndarray, str, float]:
        """Bound in nats, bound after each turn, reason, seconds until the function had run once."""
        basis = model.basis
        parts = basis.map, basis.b, basis.theta
        variables = [variable for part in parts for variable in part.trainable_variables]
        function = compiled_objective(lambda: model.bound(groups, integration), variables)
        began = time.perf_counter()
        function(as_vector(variables))
        tracing = time.perf_counter() - began
        frame = ClimbCoordinates(basis, C, variables)
        moved, start = frame.around(function), frame.inward(as_vector(variables))
        turns = np.zeros(0)
        limits = record, self.tolerance, self.max_evaluations
        if self.alternate:
            best, turns, reason = climb_in_turns(moved, start, turns_of(basis, variables), *limits)
            bound = float(turns[-1])
        else:
            best, bound, reason = climb(moved, start, *limits)
        assign_vector(variables, frame.outward(best))
        return bound, turns, reason, tracing


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
