"""Full-GP binary classifiers on one clock: ours, GPflow's `VGP` and `VGPOpperArchambeau`,
scikit-learn's Laplace.
"""

from __future__ import annotations

__all__ = ["METHODS", "Fit", "best_of", "log_loss"]

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss as mean_log_loss

from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import (
    CholeskyKL,
    ConjugateComputation,
    ExpectationPropagation,
    LaplaceApproximation,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
)

from ...harness.machine import clock
from .problems import Problem


class Fit(NamedTuple):
    """The trace of a method. Compilation, and evaluations that only the trace needs, are not in
    `seconds`.
    """

    label: str
    compile_seconds: float
    seconds: list[float]
    """after each iteration"""
    elbo: list[float]
    """nats, after each iteration; empty for Laplace"""
    probability: Callable[[np.ndarray], np.ndarray]
    """X [N*, D] -> probability of class 1 [N*]"""
    note: str = ""
    evidence: Sequence[float] = ()
    """nats, after each iteration: estimates of the log evidence, of methods that have them"""


def log_loss(fit: Fit, problem: Problem) -> float:
    """Mean negative log probability of the held-out labels, in nats."""
    probability = np.clip(fit.probability(problem.X[problem.test]), 1e-12, 1.0 - 1e-12)
    return float(mean_log_loss(problem.Y[problem.test, 0], probability, labels=[0.0, 1.0]))


def best_of(
    method: Callable[[Problem, float], Fit], problem: Problem, limit: float, repeats: int
) -> Fit:
    """The fastest of `repeats` fits, because other work on the machine slows down some. A slow
    method is fitted once.
    """
    fits = [method(problem, limit)]
    while len(fits) < repeats and fits[-1].seconds[-1] < 0.2 * limit:
        fits.append(method(problem, limit))
    return min(fits, key=lambda fit: fit.seconds[-1])


def _probability(model: gpflow.models.GPModel) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: np.asarray(model.predict_y(X)[0])[:, 0]


def _conjugate(rho: float) -> Callable[[Problem, float], Fit]:
    """`ConjugateComputation.run` on `CVIGP`, with its function compiled beforehand; the kernel
    matrix counts.
    """

    def run(problem: Problem, limit: float) -> Fit:
        model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        rule, nothing = (
            ConjugateComputation(rho),
            tf.zeros([len(problem.X), 1], gpflow.default_float()),
        )
        start = clock()
        probe = rule.compiled_probe(model)
        for nu in (nothing, nothing + 1.0):
            probe(nu, nu, tf.zeros([2], tf.int32))
        compile_seconds, start, trace = clock() - start, clock(), []
        rule.compiled_probe(model)  # the kernel matrix alone

        def traced(*sites: tf.Tensor) -> Any:
            found = probe(*sites)
            trace.append((clock() - start, float(found.elbo)))
            return found

        setattr(rule, "compiled_probe", lambda _: traced)  # noqa: B010
        result = rule.run(model)
        seconds, elbo = (list(column) for column in zip(*trace[1:]))  # the first is the prior
        return Fit(
            f"CVIGP, rho {rho:g}",
            compile_seconds,
            seconds,
            elbo,
            _probability(model),
            result.reason,
        )

    return run


def _estimating(
    label: str, rule: ExpectationPropagation | LaplaceApproximation
) -> Callable[[Problem, float], Fit]:
    """A method that estimates the evidence, on `CVIGP`, with its function compiled beforehand; the
    kernel matrix counts.
    """

    def run(problem: Problem, limit: float) -> Fit:
        model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        mine: Any = copy.copy(rule)
        arguments = [tf.zeros([len(problem.X), 1], gpflow.default_float())] * (
            1 if isinstance(rule, LaplaceApproximation) else 2
        )
        start = clock()
        probe = mine.compiled_probe(model)
        probe(*arguments)
        compile_seconds, start, trace = clock() - start, clock(), []
        mine.compiled_probe(model)  # the kernel matrix alone

        def traced(*at: tf.Tensor) -> Any:
            found = probe(*at)
            trace.append((clock() - start, float(found.elbo), float(found.evidence)))
            return found

        mine.compiled_probe = lambda *_: traced
        result = mine.run(model)
        seconds, elbo, evidence = (
            list(column) for column in zip(*trace[1:])
        )  # the first is the prior
        return Fit(
            label, compile_seconds, seconds, elbo, _probability(model), result.reason, evidence
        )

    return run


def _natural_gradient(gammas: Sequence[float], label: str) -> Callable[[Problem, float], Fit]:
    """GPflow's `VGP` and `NaturalGradient` in one compiled step, until the bound no longer changes
    or is not finite.

    :param gammas: step size of each step; later steps have the last of them.
    :param label: how the report names these.
    """

    def run(problem: Problem, limit: float) -> Fit:
        model = gpflow.models.VGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        gamma, q = (
            tf.Variable(gammas[0], dtype=gpflow.default_float()),
            [(model.q_mu, model.q_sqrt)],
        )
        optimiser = gpflow.optimizers.NaturalGradient(gamma)
        compiled, elbo = (
            tf.function(lambda: optimiser.minimize(model.training_loss, q)),
            tf.function(model.elbo),
        )
        first = [(variable, variable.numpy()) for variable in model.variables]
        start = clock()
        compiled()
        compile_seconds = clock() - start
        for variable, value in first:
            variable.assign(value)
        ramp = iter(gammas)

        def step() -> None:
            gamma.assign(next(ramp, gammas[-1]))
            compiled()

        seconds, values, note = _iterate(step, lambda: float(elbo()), limit)
        return Fit(
            f"VGP, gamma {label}", compile_seconds, seconds, values, _probability(model), note
        )

    return run


def _iterate(
    step: Callable[[], object], elbo: Callable[[], float], limit: float
) -> tuple[list[float], list[float], str]:
    """Seconds and bounds after each step, and how it ended; evaluations of the bound are not in the
    seconds.
    """
    seconds, values = [0.0], [elbo()]
    while seconds[-1] < limit:
        start = clock()
        try:
            step()
        except tf.errors.InvalidArgumentError:
            return seconds[1:], values[1:], "a factorisation failed"
        seconds.append(seconds[-1] + clock() - start)
        values.append(elbo())
        if not np.isfinite(values[-1]):
            return seconds[1:], values[1:], "the bound is not finite"
        if abs(values[-1] - values[-2]) < 1e-9 * abs(values[-1]):
            return seconds[1:], values[1:], "converged"
    return seconds[1:], values[1:], "stopped at the limit"


def _opper_archambeau(problem: Problem, limit: float) -> Fit:
    """GPflow's `VGPOpperArchambeau` with the compiled loss of its `Scipy` optimiser, L-BFGS."""
    model = gpflow.models.VGPOpperArchambeau(
        (problem.X, problem.Y), problem.kernel(), problem.likelihood()
    )
    gpflow.set_trainable(model.kernel, False)
    optimiser, variables = gpflow.optimizers.Scipy(), model.trainable_variables
    start, first = clock(), optimiser.initial_parameters(variables)
    compiled = optimiser.eval_func(model.training_loss, variables, tf_fun_args={}, compile=True)
    compiled(first)
    compile_seconds, start = clock() - start, clock()
    seconds, values, note = [], [], "stopped at the limit"

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = compiled(x)
        return (
            (value, slope) if np.isfinite(value) else (1e10, np.zeros_like(x))
        )  # makes the line search take a shorter step

    def callback(intermediate_result: Any) -> None:
        seconds.append(clock() - start)
        values.append(-float(intermediate_result.fun))
        if seconds[-1] > limit:
            optimiser.assign_tensors(
                variables, optimiser.unpack_tensors(variables, intermediate_result.x)
            )
            raise StopIteration

    options = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 1e-13, "gtol": 1e-8}
    found = minimize(loss, first, jac=True, method="L-BFGS-B", callback=callback, options=options)
    optimiser.assign_tensors(variables, optimiser.unpack_tensors(variables, found.x))
    note = note if seconds[-1] > limit else str(found.message).lower()
    return Fit(
        "Opper-Archambeau, L-BFGS", compile_seconds, seconds, values, _probability(model), note
    )


def _laplace(problem: Problem, limit: float) -> Fit:
    """scikit-learn's `GaussianProcessClassifier` at fixed hyperparameters; its objective is not the
    ELBO.
    """
    kernel = ConstantKernel(problem.variance) * RBF(problem.lengthscale)
    classifier = GaussianProcessClassifier(kernel, optimizer=None)
    start = clock()
    classifier.fit(problem.X, problem.Y[:, 0])
    seconds = clock() - start
    return Fit(
        "scikit-learn, Laplace",
        0.0,
        [seconds],
        [],
        lambda X: classifier.predict_proba(X)[:, 1],
        "the whole fit",
    )


def _lagrangian(problem: Problem, limit: float) -> Fit:
    """`LinearlyConstrainedLagrangian` on `LCLGP`, its functions compiled beforehand; a point per
    outer iteration.
    """
    model = LCLGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
    rule = LinearlyConstrainedLagrangian()
    start = clock()
    prepared = rule.prepare(model)
    rule.run(model, prepared=prepared)  # every function is compiled now
    compile_seconds = clock() - start
    model.basis.alpha.assign(tf.zeros_like(model.basis.alpha))
    model.basis.lam.assign(tf.zeros_like(model.basis.lam))
    start = clock()
    result = rule.run(model, prepared=prepared)
    share = (clock() - start) / result.seconds  # of the processor where that is the clock
    seconds = [share * float(one) for one in result.history["seconds"]]
    bounds, note = (
        list(result.history["elbo"]),
        f"{result.reason}, {result.inner_steps} Newton steps",
    )
    return Fit("LCLGP", compile_seconds - seconds[-1], seconds, bounds, _probability(model), note)


def _alternative(label: str, rule: OpperArchambeau | CholeskyKL) -> Callable[[Problem, float], Fit]:
    """An alternative to the Lagrangian on the same model.

    Its first evaluation, which compiles, is counted with the seconds of a later one. It is given as
    many evaluations as fit into the limit, judged by the seconds of a first dozen."""

    def run(problem: Problem, limit: float) -> Fit:
        model = LCLGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        short, rest = copy.copy(rule), copy.copy(rule)
        short.max_evaluations = 12
        start = clock()
        tried = short.run(LCLGP(model.data, problem.kernel(), problem.likelihood()))
        pace = float(np.median(_paces(tried.history))) * (clock() - start) / tried.seconds
        rest.max_evaluations = min(rule.max_evaluations, max(12, int(limit / pace)))
        start = clock()
        result = rest.run(model)
        share = (clock() - start) / result.seconds
        history = result.history
        one = float(np.median(_paces(history)))
        first = one * float(np.sum(history["inner_steps"][:2]))
        seconds = share * np.concatenate(
            [[one], first + history["seconds"][1:] - history["seconds"][1]]
        )
        compile_seconds = share * result.seconds - seconds[-1]
        evaluations = f"{result.reason}, {result.inner_steps} evaluations"
        return Fit(
            label,
            compile_seconds,
            list(seconds),
            list(history["elbo"]),
            _probability(model),
            evaluations,
        )

    return run


def _paces(history: dict[str, np.ndarray]) -> np.ndarray:
    """Seconds per evaluation in each iteration, without the first, which compiles, where there are
    others.
    """
    paces = np.diff(history["seconds"]) / np.maximum(history["inner_steps"][1:], 1)
    return paces[1:] if len(paces) > 1 else np.append(paces, 1e-3)[:1]


METHODS: dict[str, Callable[[Problem, float], Fit]] = {
    "cvi": _conjugate(1.0),
    "cvi-half": _conjugate(0.5),
    "vgp": _natural_gradient([1.0], "1"),
    "vgp-half": _natural_gradient([0.5], "0.5"),
    "vgp-ramp": _natural_gradient([0.1 ** (1.0 - k / 10.0) for k in range(11)], "0.1 to 1"),
    "opper-archambeau": _opper_archambeau,
    "laplace": _laplace,
    "ep": _estimating("CVIGP, EP", ExpectationPropagation()),
    "ep-half": _estimating("CVIGP, EP of power 1/2", ExpectationPropagation(0.5)),
    "newton": _estimating("CVIGP, Laplace", LaplaceApproximation()),
    "lcl": _lagrangian,
    "opper": _alternative("Opper, L-BFGS", OpperArchambeau()),
    "cholesky": _alternative("Cholesky, whitened, L-BFGS", CholeskyKL()),
    "cholesky-unwhitened": _alternative("Cholesky, unwhitened, L-BFGS", CholeskyKL(whiten=False)),
}
"""Name -> function from a problem and a limit in seconds to a `Fit`."""
