"""Warnings point to the user's line, whatever called what inside of the package.

Each module that warns is provoked through the functions that users call, and each warning has to
name this file.
"""

from __future__ import annotations

import ast
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpflow
import joblib
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import compilation as graph_memory
from gpflow_decoupled import likelihoods, models, optimizers
from gpflow_decoupled.bases import OrthogonalBasis
from gpflow_decoupled.certificates import pac_bayes_certificate
from gpflow_decoupled.diagnostics import (
    warn_of_fall,
    warn_of_last_rise,
    warn_of_no_signal,
    warn_of_rise,
)
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.inducing import select
from gpflow_decoupled.optimizers.lagrangian import linearly_constrained as outer_iterations
from gpflow_decoupled.optimizers.neighbours import NeighbourRounds, SiteSweeps
from gpflow_decoupled.pathwise import pathwise_samples
from gpflow_decoupled.saving import model_file
from gpflow_decoupled.training import Checkpoints, Evaluation, Schedule, Standardized
from gpflow_decoupled.training import checkpoints as lock
from gpflow_decoupled.training.evaluation import repair_drift
from gpflow_decoupled.training.run import Scores
from gpflow_decoupled.training.stages import neighbour_sites
from gpflow_decoupled.training.tables import Table
from gpflow_decoupled.training.turns import Turns
from gpflow_decoupled.user_warnings import warn_user
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor

PACKAGE = Path(gd.__file__).parent
X = np.linspace(0.0, 1.0, 12)[:, None]
DATA = X, np.sin(3.0 * X)
LABELS = X, np.where(X > 0.5, 1.0, 0.0)
Patch = pytest.MonkeyPatch


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=0.4)


def classifier() -> models.SparseCVIGP:
    return models.SparseCVIGP(kernel(), likelihoods.BernoulliLogit(), X[::4])


def orthogonal(gamma: np.ndarray = X[::5] + 0.01) -> models.ODVGP:
    return models.ODVGP(kernel(), gpflow.likelihoods.Gaussian(), gamma, X[::4])


def bound_that_does_not_exist(_: Patch) -> None:
    model = models.AffineIndependentGLM(
        (X + 0.5, np.round(3.0 * X)), gpflow.likelihoods.Poisson(), base="laplace", intercept=False
    )
    model.basis.map.assign_matrix([[2.0]])
    model.elbo()


def rows_without_weights(_: Patch) -> None:
    built = gd.build(
        *DATA,
        sample_weight=np.linspace(1.0, 2.0, 12),
        num_inducing=4,
        num_mean_points=0,
        verbose=False,
    )
    built.elbo((X[:5], DATA[1][:5]))


def too_few_nodes(_: Patch) -> None:
    model = models.CVIGP(DATA, kernel(), gpflow.likelihoods.StudentT(scale=0.001))
    optimizers.ExpectationPropagation(nodes=20).run(model, steps=2)


def passes_used_up(_: Patch) -> None:
    labels = (DATA[1] > 0.0).astype(float)
    model = models.NNGP((X, labels), kernel(), gpflow.likelihoods.Bernoulli(), num_neighbours=4)
    optimizers.SiteSweeps(model, step_size=0.01, compile=False).run(30)


def last_passes_undone(patch: Patch) -> None:
    patch.setattr(neighbour_sites, "falls", lambda gains: True)
    patch.setattr(neighbour_sites, "_GAIN", -np.inf)
    passes = SiteSweeps.run
    patch.setattr(
        SiteSweeps, "run", lambda *args, **given: passes(*args, **given)._replace(converged=False)
    )
    labels = (DATA[1] > 0.0).astype(float)
    model = models.NNGP((X, labels), kernel(), gpflow.likelihoods.Bernoulli(), num_neighbours=4)
    gpflow.set_trainable(model.kernel, False)
    gd.fit(model, progress=False, compile=False)


def stalled_run(patch: Patch) -> None:
    """No step is found although the subproblem is not solved."""
    patch.setattr(outer_iterations, "newton_solve", lambda *args: (args[2], args[3], 0))
    model = models.LCLGP(DATA, kernel(), likelihoods.Laplace(0.4))
    optimizers.LinearlyConstrainedLagrangian(accelerate=False, compile=False).run(model)


def coarse_draws(_: Patch) -> None:
    model = models.ODVGP(kernel(), gpflow.likelihoods.Gaussian(1e-3), "data", X[:1], num_data=12)
    optimizers.ConjugateGradients().run(model, DATA)
    solver = optimizers.ConjugateGradients(tolerance=1e-12, max_products=1)
    pathwise_samples(model, 2, data=DATA, solver=solver)


def file_of_another_version(patch: Patch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gd.save(classifier(), Path(folder) / "model.zip")
        patch.setattr(model_file, "version", lambda name: "another")
        gd.load(Path(folder) / "model.zip")


class OwnNoise(gpflow.likelihoods.StudentT):
    """A log density of a user's own, integrated by GPflow's 20 nodes."""

    def _scalar_log_prob(self, X, F, Y):
        return super()._scalar_log_prob(X, F, Y)


def narrow_noise(_: Patch) -> None:
    model = models.CVIGP(DATA, kernel(), OwnNoise(scale=1e-3, df=3.0))
    optimizers.ConjugateComputation().run(model, steps=3)


def steps_used_up(_: Patch) -> None:
    model = models.CVIGP(DATA, kernel(), gpflow.likelihoods.Gaussian(0.01))
    optimizers.ConjugateComputation(step_size=1e-3).run(model)


def other_scale(_: Patch) -> None:
    X = np.linspace(0.0, 1.0, 100)[:, None]
    model = models.CVIGP((X, 1e-4 * np.sin(9.0 * X)), kernel(), gpflow.likelihoods.Gaussian(0.1))
    gd.fit(model, steps=1, progress=False, compile=False)


def solve_cut_short(patch: Patch) -> None:
    place = "gpflow_decoupled.models.neighbours.mean_of_rows"
    patch.setattr(f"{place}.EXACT_ROWS", 0)
    patch.setattr(f"{place}._NEIGHBOURS", 2)  # with more, few rows are solved at once
    patch.setattr(f"{place}._MUCH_LEFT", -1.0)
    inputs = np.random.default_rng(0).uniform(size=(60, 3))
    data = inputs, np.sin(9.0 * inputs[:, :1])
    model = models.NNGP(data, kernel(), num_neighbours=4, mean="data")
    model.solve_mean(tolerance=1e-12, max_products=3)


def unknown_tensorflow(patch: Patch) -> None:
    patch.setattr(graph_memory, "_cache", dict)
    graph_memory._warn_of_untidied()


def short_run(patch: Patch) -> None:
    patch.setattr("gpflow_decoupled.wrappers.sklearn._EVERY", 5)
    X = np.random.default_rng(1).uniform(0.0, 6.0, (80, 1))
    DecoupledGPRegressor(
        steps=30,
        num_inducing=20,
        num_mean_points=0,
        validation_fraction=0.2,
        fit_options={"compile": False, "batch_size": 20, "learning_rate": 0.05},
    ).fit(X, np.sin(X[:, 0]))


def fit(model: Any, data: Any = LABELS, steps: int = 1, **options: Any) -> object:
    return gd.fit(model, data, steps=steps, compile=False, progress=False, **options)


def many_points(num_data: int | None = None) -> models.SparseCVIGP:
    Z = np.linspace(0.0, 1.0, 13)[:, None]
    return models.SparseCVIGP(kernel(), likelihoods.BernoulliLogit(), Z, num_data=num_data)


def passes() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield LABELS


def nearly_constant() -> np.ndarray:
    """Inputs whose second column differs in its last digits."""
    return np.hstack([X, 1.0 + 2.3e-16 * (np.arange(len(X))[:, None] % 2)])


def built_by_joblib(_: Patch) -> None:
    """As scikit-learn's cross-validation calls an estimator."""
    build = joblib.delayed(gd.build)
    joblib.Parallel(n_jobs=1)([build(nearly_constant(), DATA[1], verbose=False)])


def score_that_is_not_finite(patch: Patch) -> None:
    patch.setattr(Scores, "evaluate", lambda *_: {"log_density": -np.inf})
    fit(classifier(), evaluation=Evaluation(LABELS, every=1))


def in_a_folder(patch: Patch, spoil: Callable[[Path, Patch], object]) -> None:
    """A run with two checkpoints in a folder that is then spoilt, and a longer one."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"checkpoint": Checkpoints(folder, every=1), "schedule": Schedule(anneal=0.0)}
        fit(classifier(), steps=2, **settings)
        spoil(Path(folder), patch)
        fit(classifier(), steps=3, **settings)


def refresh_that_fails(patch: Patch) -> None:
    def fail(*_: object) -> None:
        raise NumericalError("C_gamma cannot be factorised.")

    model = orthogonal()
    patch.setattr(OrthogonalBasis, "refresh", fail)
    fit(model, DATA, steps=2, schedule=Schedule(refresh_every=1))


def far_off_intervals(patch: Patch) -> None:
    judged = SimpleNamespace(spread=9.0), True
    patch.setattr(NeighbourRounds, "calibrate", lambda *_: judged)
    noise = gpflow.likelihoods.Gaussian()
    fit(models.NNGP(DATA, kernel(), noise, num_neighbours=4), None)


def drifted_replicas(_: Patch) -> None:
    group = SimpleNamespace(
        strategy=True, replicas=2, copies=lambda _: [], gather=lambda _: np.array([0, 1])
    )
    repair_drift(group, [])


def late_climb(_: Patch) -> None:
    model = models.SparseCVIGP(kernel(), gpflow.likelihoods.Gaussian(), X[::4])
    gd.fit(model, DATA, seconds=1e-6, optimizer="lbfgs", compile=False, progress=False)


def spoilt_end(patch: Patch) -> None:
    """The test that fails is the last one, which has the exact bound."""
    patch.setattr(Turns, "is_sound", lambda self, done, bound=None: bound is None)
    fit(classifier(), steps=2, batch_size=None)


def new_word(_: Patch) -> object:
    table, _, _ = Table.learn(pd.DataFrame({"word": ["a", "b"]}), [1.0, 2.0])
    return table.inputs(pd.DataFrame({"word": ["A", "b"]}))


def new_gap(_: Patch) -> object:
    table, _, _ = Table.learn(pd.DataFrame({"number": [1.0, 2.0]}), [1.0, 2.0])
    return table.inputs(pd.DataFrame({"number": [np.nan, 2.0]}))


PROVOKED: dict[str, list[Callable[[Patch], object]]] = {
    "certificates/certificate.py": [
        lambda _: pac_bayes_certificate(classifier(), LABELS),
        lambda _: pac_bayes_certificate(classifier(), LABELS, hyperparameters="same-data"),
        lambda _: pac_bayes_certificate(classifier(), LABELS, learned_on=LABELS),
    ],
    "building/choice.py": [lambda _: gd.build(X, X[:, 0] > 0.0, verbose=False)],
    "diagnostics/accuracy.py": [narrow_noise],
    "diagnostics/starts.py": [
        lambda _: warn_of_no_signal(
            models.CVIGP(DATA, kernel(), gpflow.likelihoods.Gaussian()), *DATA
        )
    ],
    "diagnostics/trend.py": [
        lambda _: warn_of_fall([0.0], -1e3, 12, True),
        lambda _: warn_of_fall(np.linspace(-1e3, 0.0, 200), -500.0, 12, True),
        lambda _: warn_of_rise(np.linspace(-1e3, 0.0, 200), 12, "Go on."),
        lambda _: warn_of_last_rise(1.0, 12, "Go on."),
        lambda _: warn_of_last_rise(np.inf, 12, "Go on."),
    ],
    "diagnostics/scales.py": [other_scale],
    "compilation.py": [unknown_tensorflow],
    "inducing/variables.py": [
        lambda _: orthogonal(np.concatenate([X[:1], X[:2] + 0.01])),
        lambda _: models.BasisGP(
            kernel(),
            gpflow.likelihoods.Gaussian(),
            OrthogonalBasis(np.concatenate([X[:1], X[:2] + 0.01]), X[::4]),
        ),
    ],
    "inducing/select.py": [
        lambda _: select(X, 4, kernel(), max_rows=8),
        lambda _: select(X, 4, gpflow.kernels.Constant()),
    ],
    "models/affine_independent.py": [bound_that_does_not_exist],
    "models/basis_gp.py": [
        lambda _: orthogonal().elbo(DATA),
        lambda _: orthogonal().training_loss(DATA),
        lambda _: orthogonal().training_loss_closure(DATA)(),
    ],
    "models/checks.py": [
        lambda _: models.CVIGP((X, 0.0 * X), kernel(), gpflow.likelihoods.Gaussian()),
        lambda _: models.LCLGP((X[:1], X[:1]), kernel(), gpflow.likelihoods.Gaussian()),
    ],
    "models/neighbours/groups.py": [
        lambda _: models.NNGP(
            DATA, kernel(), gpflow.likelihoods.Gaussian(1.0000001e-6), num_neighbours=4
        ).leave_one_out()
    ],
    "models/neighbours/mean_of_rows.py": [solve_cut_short],
    "models/full_gp.py": [
        lambda _: models.StateSpaceGP(
            DATA,
            gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(lengthscales=0.1)),
            gpflow.likelihoods.Gaussian(),
            harmonics=2,
        )
    ],
    "optimizers/expectation_propagation.py": [too_few_nodes],
    "optimizers/conjugate_computation.py": [steps_used_up],
    "optimizers/lagrangian/linearly_constrained.py": [stalled_run],
    "optimizers/neighbours/site_rounds.py": [passes_used_up],
    "pathwise/corrections.py": [coarse_draws],
    "saving/model_file.py": [file_of_another_version],
    "training/checkpoints.py": [
        lambda patch: in_a_folder(patch, lambda path, _: (path / "checkpoint").unlink()),
        lambda patch: in_a_folder(patch, lambda _, patch: patch.setattr(lock, "fcntl", None)),
        lambda patch: in_a_folder(patch, lambda path, _: (path / "run-2.json").unlink()),
    ],
    "training/routes/minibatches.py": [
        lambda _: fit(many_points(12), tf.data.Dataset.from_tensors(LABELS)),
        lambda _: fit(many_points(12), passes),
        lambda _: Standardized(lambda *_: many_points(), LABELS).fit(steps=1, compile=False),
    ],
    "training/run.py": [spoilt_end, score_that_is_not_finite],
    "training/stages/climbs.py": [late_climb],
    "training/stages/minibatches.py": [refresh_that_fails],
    "training/stages/neighbour_sites.py": [last_passes_undone],
    "training/stages/neighbours.py": [far_off_intervals],
    "training/standardization.py": [
        lambda _: gd.build(nearly_constant(), DATA[1], verbose=False),
        built_by_joblib,
    ],
    "training/columns.py": [new_word, new_gap],
    "training/units.py": [rows_without_weights],
    "training/evaluation.py": [drifted_replicas],
    "wrappers/sklearn.py": [short_run],
}
LONG = (
    "models/basis_gp.py",
    "training/checkpoints.py",
    "training/checkpoints.py",
    "training/routes/minibatches.py",
    "training/stages/neighbours.py",
    "wrappers/sklearn.py",
)
"""Of these the short run leaves out the last action."""
CASES = [
    pytest.param(
        module,
        action,
        id=module,
        marks=[pytest.mark.exhaustive] if module in LONG and action is actions[-1] else [],
    )
    for module, actions in PROVOKED.items()
    for action in actions
]


@pytest.mark.costly(keep=6)
@pytest.mark.parametrize("module, action", CASES)
def test_the_users_line_is_named(module: str, action: Callable, monkeypatch: Patch) -> None:
    with pytest.warns(Warning) as caught:
        action(monkeypatch)
    assert [warning.filename for warning in caught] == [__file__] * len(caught)


@pytest.mark.exhaustive
def test_every_module_that_warns_is_provoked() -> None:
    warn = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "warn_user"
    }
    assert warn == set(PROVOKED)


def test_one_line_is_warned_of_once() -> None:
    """By the filter "default", as `warnings.warn` does; another line is warned of again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_user("Once.", RuntimeWarning)
        warn_user("Once.", RuntimeWarning)
    assert [warning.category for warning in caught] == [RuntimeWarning] * 2


@pytest.mark.exhaustive
def test_a_function_that_autograph_translates_is_not_the_users_line() -> None:
    """Its file has another name and other lines; the call of the compiled function is named."""

    @tf.function
    def compiled() -> tf.Tensor:
        warn_user("Traced.")
        return tf.zeros([])

    with pytest.warns(UserWarning, match="Traced") as caught:
        compiled()
    # on Python 3.13 the parser behind AutoGraph has deprecations of its own
    ours = [one.filename for one in caught if one.category is UserWarning]
    assert ours == [__file__]


def test_without_a_line_of_the_user_the_outermost_is_named() -> None:
    code = compile("warn_user('Nobody.')", "library.py", "exec")
    names = {"__name__": "tensorflow.worker", "warn_user": warn_user}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=exec, args=(code, names))
        thread.start()
        thread.join()
    assert [Path(warning.filename).name for warning in caught] == ["threading.py"]
