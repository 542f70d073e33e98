"""Affine-independent KL inference."""

from __future__ import annotations

__all__ = [
    "AffineIndependentAscent", "ClimbCoordinates", "Places", "as_vector", "assign_vector",
    "check_turns", "climb_in_turns", "compiled_objective", "turns_of",
]  # fmt: skip

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ..bases.affine_independent import AffineIndependentBasis, LUMap
from ..compilation import Compiled
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import naming_observation
from ..errors import DataError, NumericalError
from ..expectations.site_integrals import Integration, SiteGroup
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
# Coordinates that whiten the Gaussian optimum.


class ClimbCoordinates:
    """Coordinates A = C A~, b = C b~ of the vector [n] of all variables of q.

    With C [D, D] a lower root of the Gaussian covariance, curvatures are similar in all directions;
    None, for "low_rank", changes nothing.
    """

    def __init__(
        self, basis: AffineIndependentBasis, C: np.ndarray | None, variables: list[tf.Variable]
    ) -> None:
        self.C, self.variables = C, variables
        self.left, self.b = (
            next(iter(basis.map.trainable_variables), None),
            basis.b.unconstrained_variable,
        )

    def _multiply(self, M: np.ndarray, x: np.ndarray) -> np.ndarray:
        ends = np.cumsum([int(np.prod(variable.shape)) for variable in self.variables])[:-1]
        parts = np.split(x, ends)
        for i, variable in enumerate(self.variables):
            if variable is self.b:
                parts[i] = M @ parts[i]
            elif variable is self.left and parts[i].size == M.size:
                parts[i] = (M @ parts[i].reshape(M.shape)).ravel()
            elif (
                variable is self.left
            ):  # GPflow stores a triangular Parameter as a vector of its D (D + 1) / 2 entries
                product = M @ tfp.math.fill_triangular(parts[i]).numpy()
                parts[i] = tfp.math.fill_triangular_inverse(np.tril(product)).numpy()
        return np.concatenate(parts)

    def inward(self, x: np.ndarray) -> np.ndarray:
        """Map variables (A, b) to coordinates (A~, b~), [n] each."""
        return x if self.C is None else self._multiply(np.linalg.inv(self.C), x)

    def outward(self, x: np.ndarray) -> np.ndarray:
        """Map coordinates (A~, b~) to variables (A, b), [n] each."""
        return x if self.C is None else self._multiply(self.C, x)

    def around(self, function: Objective) -> Objective:
        """Return the function of the coordinates; its gradient is multiplied by C^T."""

        def moved(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = function(self.outward(x))
            return value, gradient if self.C is None else self._multiply(self.C.T, gradient)

        return moved


# ---
# The bound of one vector, compiled for L-BFGS.


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


# ---
# The ascent in turns for A = L U (A20).


Places: TypeAlias = np.ndarray
"""The entries of a vector that one turn moves."""


def check_turns(basis: AffineIndependentBasis) -> LUMap:
    """Return the factors of A; raise `DataError` for another structure than "lu"."""
    if not isinstance(basis.map, LUMap):
        raise DataError(
            f"alternate=True needs A = L U, and the structure of A is '{basis.structure}': build"
            " the model with structure='lu', or leave out alternate."
        )
    return basis.map


def turns_of(basis: AffineIndependentBasis, variables: Sequence[tf.Variable]) -> list[Places]:
    """Return the places of (b, L), (b, U) and the shapes in the vector of `variables`.

    Raises the errors of `check_turns`.
    """
    factors = check_turns(basis)
    ends = np.cumsum([0, *(int(np.prod(variable.shape)) for variable in variables)])
    found = {
        variable.ref(): np.arange(*pair) for variable, pair in zip(variables, zip(ends, ends[1:]))
    }
    L, U, b, theta = (
        part.unconstrained_variable
        for part in (factors.L, factors.U_transposed, basis.b, basis.theta)
    )
    turns = [
        [found[one.ref()] for one in turn if one.ref() in found]
        for turn in ((b, L), (b, U), (theta,))
    ]
    return [np.concatenate(turn) for turn in turns if turn]  # (A20)


def climb_in_turns(
    function: Objective,
    start: np.ndarray,
    turns: Sequence[Places],
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
            x[places], value, reason = climb(
                _restricted(function, x.copy(), places),
                x[places],
                counted,
                tolerance,
                max_evaluations - done,
            )
            bounds.append(value)
            if reason != "converged":
                return x, np.array(bounds[1:]), reason
        if bounds[-1] - bounds[-1 - len(turns)] < tolerance:
            return x, np.array(bounds[1:]), "converged"


def _restricted(function: Objective, x: np.ndarray, places: Places) -> Objective:
    def restricted(part: np.ndarray) -> tuple[float, np.ndarray]:
        point = x.copy()
        point[places] = part
        value, gradient = function(point)
        return value, gradient[places]

    return restricted


# ---


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
