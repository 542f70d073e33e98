"""Affine-independent KL inference: the Gaussian solution first, then A, b and the shapes of the base together (section 9)."""

from __future__ import annotations

__all__ = ["AffineIndependentAscent", "BaseChoice", "best_base"]

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy
from gpflow.utilities import deepcopy

from ...bases.affine_independent import AffineIndependentBasis
from ...compilation import Compiled
from ...errors import DataError, NumericalError
from ...expectations.site_integrals import Integration, SiteGroup
from ...models.affine_independent.gp import AffineIndependentGP
from ..lbfgs import Objective
from .climb import climb
from .edgeworth import Start, edgeworth_shapes, edgeworth_start
from .frame import Frame
from .gaussian_kl import GaussianProblem, GaussianSolution
from .result import AffineResult, AffineTrace

_COARSE, _SHARE = 1e-6, 1e-2
"""A bound that moves by more than this, and than this share of the tolerance, with twice the frequencies is climbed again
with them, ..."""
_REFINEMENTS = 2
"""... so many times."""
_WORTH = 100_000
"""Characteristic functions of a bound from which on fewer frequencies may save more than compiling twice costs."""


class AffineIndependentAscent:
    """Finds q of an `models.AffineIndependentGP` or `models.AffineIndependentGLM` at a fixed kernel and likelihood.

    :param tolerance: in nats; a stage ends when six iterations of L-BFGS gain less.
    :param max_evaluations: of each stage, at most.
    :param rotate: choose the rotation of A by (A19); otherwise that of the Gaussian's Cholesky factor.
    :param keep_better: leave the model with a normal base where the Gaussian has the greater bound, which can be only with
        shapes that are fixed or cannot be normal. False leaves it with the base asked for.

    Shapes are fixed by `gpflow.set_trainable(model.basis.theta, False)`. Raises `DataError` for settings out of range.
    """

    def __init__(
        self,
        tolerance: float = 1e-5,
        max_evaluations: int = 2000,
        *,
        rotate: bool = True,
        keep_better: bool = True,
    ) -> None:
        if not tolerance > 0.0 or max_evaluations < 1:
            raise DataError(
                f"tolerance={tolerance!r} must be above 0 and max_evaluations={max_evaluations!r} at least 1."
            )
        self.tolerance, self.max_evaluations = float(tolerance), int(max_evaluations)
        self.rotate, self.keep_better = rotate, keep_better

    def run(self, model: AffineIndependentGP) -> AffineResult:
        """The Gaussian optimum, the start by (A18) and (A19), and the joint climb; the model is left at the best q.

        Raises `NumericalError` where the bound of the Gaussian is not finite at the start, and nothing has changed then.
        """
        trace = AffineTrace()
        basis, groups = model.basis, model.site_groups()
        fixed = basis.theta if not basis.theta.trainable and basis.base.num_shapes else None
        base = basis.base
        problem = GaussianProblem(groups, basis.gaussian, _constant(model), model.integration, trace)
        gaussian = problem.solve(self.tolerance, self.max_evaluations)
        if basis.structure == "low_rank":
            gaussian = self._structured(model, groups, gaussian, trace)
        gaussian_seconds = trace.seconds - trace.tracing
        trace.stage = 1
        rotate = self.rotate and basis.map.rotates
        start = edgeworth_start(groups, gaussian.b, gaussian.root, base, rotate, basis.non_normal)
        try:
            value, reason, resolution = self._affine(model, groups, gaussian, start, fixed, trace)
        except NumericalError:
            if not self.keep_better:
                raise
            value, reason, resolution = -np.inf, "no finite bound with this base", float("nan")
        kept = "affine"
        if self.keep_better and not value >= gaussian.bound:
            kept = "gaussian"
            _assign(basis, gaussian, gaussian.root)
            basis.assign_base("normal")
        left = gaussian.bound if kept == "gaussian" else value
        return AffineResult(
            trace.history, trace.seconds, trace.tracing, gaussian_seconds, reason, gaussian.bound, value, left, kept,
            start.gain, resolution,
        )  # fmt: skip

    def _affine(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        gaussian: GaussianSolution,
        start: Start,
        fixed: Any | None,
        trace: AffineTrace,
    ) -> tuple[float, str, float]:
        """The joint climb: its bound, why it stopped, and by how much the bound moves with twice the frequencies."""
        basis = model.basis
        _assign(basis, gaussian, start.A)
        if fixed is None and basis.base.num_shapes:
            A = basis.matrix().numpy()  # with its columns as the structure has ordered them
            basis.theta.assign(edgeworth_shapes(groups, gaussian.b, A, basis.base, basis.non_normal))
        allowed = max(_COARSE, _SHARE * self.tolerance)
        how = _coarsest(model, groups, allowed)
        root = None if gaussian.coordinates is not None else gaussian.root
        finest = model.integration.frequencies << _REFINEMENTS
        while True:
            value, reason = self._climb(model, groups, how, root, trace)
            finer = float(model.bound(groups, max(how.doubled(), model.integration, key=lambda one: one.frequencies)))
            resolution = abs(finer - value)
            if resolution < allowed or how.frequencies >= finest:
                break
            how = how.doubled()
        while model.integration.frequencies < how.frequencies:
            model.refine()
        return finer, reason, resolution

    def _climb(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        how: Integration,
        C: np.ndarray | None,
        trace: AffineTrace,
    ) -> tuple[float, str]:
        """L-BFGS on all Parameters of q that are trainable, in the frame of a root C [D, D]; left at the best point."""
        basis = model.basis
        variables = [*basis.map.trainable_variables, *basis.b.trainable_variables, *basis.theta.trainable_variables]
        function = _compiled(lambda: model.bound(groups, how), variables)
        began = time.perf_counter()
        function(_pack(variables))
        trace.tracing += time.perf_counter() - began
        frame = Frame(basis, C, variables)
        start = frame.inward(_pack(variables))
        best, value, reason = climb(frame.around(function), start, trace, self.tolerance, self.max_evaluations)
        _unpack(frame.outward(best), variables)
        return value, reason

    def _structured(
        self, model: AffineIndependentGP, groups: list[SiteGroup], dense: GaussianSolution, trace: AffineTrace
    ) -> GaussianSolution:
        """The Gaussian of a structure that does not hold every covariance: the climb with a normal base, from the best one."""
        basis = model.basis
        base, theta = basis.base, basis.theta
        left, values, _ = np.linalg.svd(dense.root)
        _assign(basis, dense, (left * values) @ left.T)  # of all roots the nearest to the prior's, which is diagonal
        basis.assign_base("normal")
        value, _ = self._climb(model, groups, model.integration, None, trace)
        coordinates = _pack(list(basis.map.trainable_variables))
        found = GaussianSolution(basis.b.numpy(), basis.matrix().numpy(), value, coordinates)
        basis.base, basis.theta = base, theta
        return found


def _coarsest(model: AffineIndependentGP, groups: list[SiteGroup], allowed: float) -> Integration:
    """A quarter or half of the frequencies and points where they are enough: projections of many variables are smooth."""
    full = model.integration
    count = sum(group.features.shape[0] for group in groups) * model.basis.size * full.frequencies
    if model.frequencies_given or count < _WORTH:
        return full
    exact = model.bound(groups, full)
    for part in (4, 2):
        how = full._replace(frequencies=full.frequencies // part, points=full.points // part)
        if abs(float(model.bound(groups, how) - exact)) < allowed:
            return how
    return full


def _compiled(bound: Callable[[], tf.Tensor], variables: list[tf.Variable]) -> Objective:
    """The bound and its gradient [n] as a function of one vector [n] of all `variables`."""

    def both() -> tuple:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = bound()
        gradients = tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return value, Scipy.pack_tensors(gradients)

    graph: Any = Compiled(both)

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        _unpack(x, variables)
        value, gradient = graph()
        return float(value), gradient.numpy().astype(np.float64)

    return function


def _pack(variables: list[tf.Variable]) -> np.ndarray:
    """All variables as one vector [n]."""
    return Scipy.pack_tensors(variables).numpy().astype(np.float64)


def _unpack(x: np.ndarray, variables: list[tf.Variable]) -> None:
    """Write a vector [n] to the variables."""
    Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, tf.constant(x)))


def _constant(model: AffineIndependentGP) -> float:
    return 0.0 if model.weight_priors is None else model.weight_priors.log_volume


def _assign(basis: AffineIndependentBasis, gaussian: GaussianSolution, A: np.ndarray) -> None:
    if gaussian.coordinates is None:
        basis.map.assign_matrix(A)
    else:
        _unpack(gaussian.coordinates, list(basis.map.trainable_variables))
    basis.b.assign(gaussian.b)


class BaseChoice(NamedTuple):
    """The model with the greatest bound, and how the others fared."""

    base: str
    model: AffineIndependentGP
    results: dict[str, AffineResult]


def best_base(
    model: AffineIndependentGP,
    bases: Sequence[Any] = ("skew_normal", "generalized_normal"),
    ascent: AffineIndependentAscent | None = None,
) -> BaseChoice:
    """Run copies of a model with several bases, and choose the one with the greatest bound; the model itself is not changed.

    :param bases: names of `distributions.BASES`, `distributions.Base` or TFP distributions.
    """
    if not bases:
        raise DataError("bases is empty: name one at least, for example 'skew_normal'.")
    ascent = AffineIndependentAscent() if ascent is None else ascent
    models, results = {}, {}
    for base in bases:
        trial = deepcopy(model)
        trial.basis.assign_base(base)
        name = trial.basis.base.name
        results[name] = ascent.run(trial)
        models[name] = trial
    best = max(results, key=lambda name: results[name].elbo)
    return BaseChoice(best, models[best], results)
