"""Which options each family of models takes: what is declared is used, and what is not declared is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_decoupled as gd
import gpflow_decoupled.likelihoods as gl
from gpflow_decoupled.compilation import Compiled
from gpflow_decoupled.errors import ModelError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    DTC,
    LCLGLM,
    LCLGP,
    NNGP,
    ODVGP,
    SOLVEGP,
    AffineIndependentGLM,
    AffineIndependentGP,
)  # fmt: skip
from gpflow_decoupled.optimizers import AffineIndependentAscent, NeighbourRounds
from gpflow_decoupled.training import Callbacks, Checkpoints, Evaluation, Schedule
from gpflow_decoupled.training.routes.full_gps import (
    AffineIndependentRoute,
    MessagesRoute,
    MultipliersRoute,
    SitesRoute,
)
from gpflow_decoupled.training.routes.inducing import InducingRoute
from gpflow_decoupled.training.routes.minibatches import natural_step
from gpflow_decoupled.training.routes.neighbour_sites import (
    NeighbourLabelsRoute,
    NeighbourSitesRoute,
)
from gpflow_decoupled.training.routes.neighbours import NeighboursRoute
from gpflow_decoupled.training.routes.registry import ROUTES, route_for
from tests.optimizers.mean_field import mean_field_problems
from tests.training.problems import (
    BETA,
    GAMMA,
    MODELS,
    grouped,
    orthogonal,
    sine,
    unchanged,
    values,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # a narrow Student-t, on purpose
X, Y = sine(8)
LABELS = (Y > 0).astype(float)
CLASSES = sine(60)[0], np.digitize(sine(60)[1], [-0.5, 0.5]).astype(float)
OUTLIERS = np.where(np.arange(8)[:, None] == 2, Y + 30.0, Y)


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=0.3)


def _student() -> gpflow.likelihoods.Likelihood:
    """Not log-concave, so that the policies for negative precisions differ."""
    return gpflow.likelihoods.StudentT(scale=0.1)


def _counts_model(kind: type) -> Any:
    return kind((X, np.round(3.0 + Y)), _kernel(), gpflow.likelihoods.Poisson())


BUILDERS: dict[type, Callable[[], Any]] = {
    InducingRoute: lambda: ODVGP(_kernel(), _student(), GAMMA, BETA, mean_subsample=3),
    SitesRoute: lambda: CVIGP((X, OUTLIERS), _kernel(), _student()),
    MultipliersRoute: lambda: _counts_model(LCLGP),
    AffineIndependentRoute: lambda: AffineIndependentGP((X, LABELS), _kernel(), BernoulliLogit()),
    NeighboursRoute: lambda: NNGP((X, OUTLIERS), _kernel(), num_neighbours=3),
    NeighbourSitesRoute: lambda: NNGP((X, LABELS), _kernel(), BernoulliLogit(), num_neighbours=3),
    NeighbourLabelsRoute: lambda: NNGP(CLASSES, _kernel(), CategoricalLogit(3), num_neighbours=5),
    MessagesRoute: lambda: mean_field_problems.log_normal_rate(samples=5),
}
"""A small model of each family, on which every option that the family takes makes a difference."""
DATA = {InducingRoute: (X, OUTLIERS)}
OF_NEIGHBOURS = NeighboursRoute, NeighbourLabelsRoute, NeighbourSitesRoute

OPTIONS: dict[str, dict[str, Any]] = {
    "steps": {"steps": 3},
    "seconds": {"seconds": 1e-9},
    "batch_size": {"batch_size": 4},
    "natural_gradient": {"natural_gradient": 0.3},
    "hold": {"hold": None},  # the last value of the route
    "negative_precision": {"negative_precision": "clip"},
    "precision": {"precision": "mixed"},
    "mean_solver": {"mean_solver": "natural"},
    "learning_rate": {"learning_rate": 0.2},
    "optimizer": {"optimizer": None},  # a new one for each run
    "Schedule.ramp_steps": {"schedule": Schedule(ramp_steps=3)},
    "Schedule.anneal": {"schedule": Schedule(anneal=1.0)},
    "Schedule.refresh_every": {"schedule": Schedule(refresh_every=1)},
    "evaluation": {"evaluation": None},  # the data of the model
    "Evaluation.patience": {"evaluation": Evaluation(every=1, patience=9)},
    "checkpoint": {"checkpoint": None},  # a folder
    "callbacks": {"callbacks": None},  # records its calls
    "seed": {"seed": 3},
    "initialize": {"initialize": "auto"},
    "progress": {"progress": True},
    "compile": {"compile": True},
    "strategy": {"strategy": None},  # one of one replica
}
"""Every option of `fit`, with a value that is not its default."""
ROUTE_OPTIONS = [
    pytest.param(
        route,
        option,
        id=f"{type(route).__name__}, {option}",
        marks=[pytest.mark.exhaustive] if isinstance(route, OF_NEIGHBOURS) else [],
    )
    for route in ROUTES
    for option in OPTIONS
]
"""Of neighbours, whose runs climb for seconds, `--exhaustive` alone tries them."""


def _chosen(route: Any, option: str, folder: Any, calls: list) -> dict[str, Any]:
    made = {
        "evaluation": lambda: {
            "evaluation": DATA.get(type(route)) or getattr(BUILDERS[type(route)](), "data", None)
        },
        "hold": lambda: {"hold": route.holds[-1] if route.holds else "sites"},
        "optimizer": lambda: {"optimizer": tf_keras.optimizers.SGD(0.01)},
        "checkpoint": lambda: {"checkpoint": Checkpoints(folder, every=1)},
        "callbacks": lambda: {"callbacks": Callbacks([lambda *call: calls.append(call)], every=1)},
        "strategy": lambda: {"strategy": tf.distribute.MirroredStrategy(["CPU:0"])},
    }
    return made.get(option, lambda: OPTIONS[option])()


def _stub_ascent(monkeypatch: pytest.MonkeyPatch) -> list:
    """An ascent that leaves q alone, and a record of its calls: what an option does can be seen
    without it.
    """
    calls: list = []

    def run(self: AffineIndependentAscent, model: Any) -> SimpleNamespace:
        calls.append(self.keep_better)
        return SimpleNamespace(elbo=float(model.elbo()), reason="converged", converged=True)

    monkeypatch.setattr(AffineIndependentAscent, "run", run)
    return calls


def _count_compiled(monkeypatch: pytest.MonkeyPatch) -> list:
    made: list = []
    make = Compiled.__init__

    def counted(self: Compiled, *arguments: Any, **options: Any) -> None:
        made.append(self)
        make(self, *arguments, **options)

    monkeypatch.setattr(Compiled, "__init__", counted)
    return made


def _run(route: Any, options: dict[str, Any]) -> tuple[Any, gd.training.FitResult]:
    """A model of the family after two steps, on its default schedule but for what is chosen."""
    with options.get("strategy", tf.distribute.get_strategy()).scope():
        model = BUILDERS[type(route)]()
    settings = {"steps": 2, "progress": False, "compile": False, **options}
    return model, gd.fit(model, DATA.get(type(route)), **settings)


def _state(model: Any) -> np.ndarray:
    return np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])


_BASE: dict[type, tuple[np.ndarray, Any]] = {}
"""What a run without options gives, for each family."""


def test_every_option_is_looked_at() -> None:
    assert set().union(*(route.takes for route in ROUTES)) == set(OPTIONS)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The noise variance is at its floor")  # of twelve rows
@pytest.mark.filterwarnings("ignore:The mean squared standardised leave-one-out error")
@pytest.mark.filterwarnings("ignore:The bound still rises")  # runs are short
@pytest.mark.filterwarnings("ignore:There was no time to move the hyperparameters")
@pytest.mark.parametrize("route, option", ROUTE_OPTIONS)
def test_an_option_is_used_or_refused(route, option, tmp_path, monkeypatch, capfd) -> None:
    """Used: the trace, the Parameters or the record change. Refused: before step 1, with the list
    of the others.
    """
    calls, compiled = [], _count_compiled(monkeypatch)
    _stub_ascent(monkeypatch)
    # a round that draws the same rows as the last, of so small a model, would be the last
    monkeypatch.setattr(NeighbourRounds, "draws_fresh_rows", True)
    options = _chosen(route, option, tmp_path, calls)
    if option not in route.takes:
        model = BUILDERS[type(route)]()
        before = [v.numpy() for v in model.variables]
        with pytest.raises(
            UnknownOptionError, match=f"fit does not use .* for {type(model).__name__}.*It takes"
        ) as info:
            gd.fit(model, DATA.get(type(route)), **options)
        listed = str(info.value).split("It takes ")[1].rstrip(".").split(", ")
        assert set(listed) >= route.takes
        assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, model.variables))
        return
    if type(route) not in _BASE:
        model, result = _run(route, {})
        _BASE[type(route)] = _state(model), result
        assert compiled == [], "compile=False"
    state, base = _BASE[type(route)]
    if option == "initialize" and not isinstance(
        BUILDERS[type(route)]().likelihood, gpflow.likelihoods.Gaussian
    ):
        with pytest.raises(
            ModelError, match="initialize is for one kernel and a Gaussian likelihood"
        ):
            _run(route, options)
        return
    model, result = _run(route, options)
    seen = {
        "steps": lambda: result.steps == 3,
        "seconds": lambda: result.steps == 1 and result.reason == "time is up",
        "evaluation": lambda: "log_density" in result.history,
        "Evaluation.patience": lambda: True,  # see the test below
        "checkpoint": lambda: list(tmp_path.glob("run-2.json")) != [],
        "callbacks": lambda: [call[0] for call in calls] == [1, 2],
        "progress": lambda: "/2 steps" in capfd.readouterr().err,
        "compile": lambda: len(compiled) > 0,
        "strategy": lambda: np.array_equal(_state(model), state),  # one replica is one process
        "Schedule.refresh_every": lambda: result.refreshes > base.refreshes,
    }
    changed = seen.get(option, lambda: not np.array_equal(_state(model), state))
    assert changed(), f"{option} is declared, and makes no difference"


LONG_RUNS = [route for route in ROUTES if not isinstance(route, OF_NEIGHBOURS)]
"""A run on neighbours has four to six steps, too few for patience."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("route", LONG_RUNS, ids=lambda route: type(route).__name__)
def test_patience_ends_every_run(route, monkeypatch) -> None:
    _stub_ascent(monkeypatch)
    options = grouped(evaluate_every=1, patience=2, steps=40)
    if type(route) is MessagesRoute:
        options["natural_gradient"] = 1e-12  # nothing but the noise of the draws moves the bound
    else:
        options["optimizer"] = tf_keras.optimizers.SGD(0.0)
    if type(route) is InducingRoute:
        options |= grouped(natural_gradient=None, mean_learning_rate=1e-12, batch_size=4)
    if type(route) is SitesRoute:
        options["natural_gradient"] = None
    model, result = _run(route, options)
    assert (
        result.converged
        and result.reason == "no improvement in 2 evaluations"
        and result.steps < 40
    )


@pytest.mark.exhaustive
def test_one_value_of_an_option_may_be_taken() -> None:
    """`None` says what these models do anyway, so that one call can be written for several of
    them.
    """
    assert "batch_size=None" in str(_refused(CVIGP))
    for kind in (CVIGP, LCLGP):
        assert (
            gd.fit(
                _counts_model(kind), steps=1, batch_size=None, progress=False, compile=False
            ).steps
            == 1
        )


def _refused(kind: type) -> UnknownOptionError:
    with pytest.raises(UnknownOptionError) as info:
        gd.fit(_counts_model(kind), batch_size=4)
    return info.value


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", ["BasisGP", "SVGP", "SOLVEGP"])
@pytest.mark.parametrize(
    "options",
    [{"mean_solver": "newton"}, {"mean_solver": "adam"}, {"schedule": Schedule(refresh_every=5)}],
    ids=str,
)
def test_options_of_the_mean_points_need_mean_points(name, options) -> None:
    model = MODELS[name]()
    before = values(model)
    with pytest.raises(
        UnknownOptionError,
        match="does not use .* This model has no mean points of its own. It takes batch_size",
    ):
        gd.fit(model, (X, Y), **options)
    assert unchanged(before, model) and model.num_data is None


LINEAR = np.array([[0.2, 1.0, 0.3], [1.0, -0.4, 0.1]])
FAMILIES = {
    "CVIGLM primal": (lambda: CVIGLM((X, LABELS), BernoulliLogit()), InducingRoute),
    "CVIGLM dual": (lambda: CVIGLM((LINEAR, LABELS[:2]), BernoulliLogit()), SitesRoute),
    "LCLGLM": (lambda: LCLGLM((X, LABELS), BernoulliLogit()), MultipliersRoute),
    "AffineIndependentGLM": (
        lambda: AffineIndependentGLM((X, LABELS), BernoulliLogit()),
        AffineIndependentRoute,
    ),
    "SVGP": (MODELS["SVGP"], InducingRoute),
}


@pytest.mark.parametrize("build, route", FAMILIES.values(), ids=FAMILIES)
def test_linear_models_are_of_the_family_of_their_form(build, route) -> None:
    assert type(route_for(build())) is route


WRONG = {
    "VGP": (
        lambda: gpflow.models.VGP((X, Y), _kernel(), gpflow.likelihoods.Gaussian()),
        "train it as GPflow does",
    ),
    "DTC": (lambda: DTC((X, Y), _kernel(), X[:3]), "Train a DTC by gpflow.optimizers.Scipy"),
    "a kernel": (_kernel, "Pass a model of gpflow_decoupled.models"),
    "a name": (lambda: "ODVGP", "Pass a model of gpflow_decoupled.models"),
    "a class": (lambda: CVIGP, "Pass a model of gpflow_decoupled.models"),
    "nothing": (lambda: None, "Pass a model of gpflow_decoupled.models"),
}


@pytest.mark.parametrize("build, advice", WRONG.values(), ids=WRONG)
def test_other_models_are_refused_with_what_trains_them(build, advice) -> None:
    model = build()
    with pytest.raises(
        ModelError, match=f"fit takes models .* and got {type(model).__name__}.*{advice}"
    ):
        gd.fit(model, (X, Y), steps=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [CVIGP, LCLGP])
def test_models_that_own_their_data_are_scored_on_others(kind) -> None:
    model, held_out = _counts_model(kind), (X + 0.01, np.round(3.0 + Y))
    result = gd.fit(model, steps=2, evaluation=held_out, progress=False, compile=False)
    density = np.mean(model.predict_log_density(held_out))
    assert result.history["log_density"][-1] == pytest.approx(density, rel=1e-10)
    assert result.elbo == pytest.approx(float(model.elbo()), rel=1e-12)
    with pytest.raises(gd.errors.DataError, match=r"evaluation: Y has shape \(8,\)"):
        gd.fit(model, steps=1, evaluation=(X, Y[:, 0]))


@pytest.mark.exhaustive
def test_the_bound_of_the_result_is_the_bound_of_the_model() -> None:
    model = orthogonal()
    result = gd.fit(model, (X, Y), steps=3, progress=False, compile=False)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-12)
    result = gd.fit(orthogonal(), (X, Y), steps=3, batch_size=4, progress=False, compile=False)
    assert result.elbo == pytest.approx(np.mean(result.history["elbo"]), rel=1e-12)
    sampled = orthogonal(mean_subsample=3)
    state = tf.random.get_global_generator().state.numpy()
    result = gd.fit(sampled, (X, Y), steps=3, progress=False, compile=False)
    assert result.elbo == pytest.approx(np.mean(result.history["elbo"]), rel=1e-12)
    assert np.array_equal(tf.random.get_global_generator().state.numpy(), state)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("rows", "options", "held"),
    [
        (40, {"batch_size": 16}, True),  # two rows for each of the eight points gamma of a SOLVE-GP
        (40, {"batch_size": 15}, False),
        (15, {"batch_size": None}, True),  # all rows
        (40, {"batch_size": 15, "hold": "sites"}, True),
        (40, {"batch_size": 16, "hold": "whitened"}, False),
        (40, {"batch_size": 31, "latents": 2}, False),
        (40, {"batch_size": 32, "latents": 2}, True),
    ],
)
def test_sites_are_held_where_a_batch_has_twice_as_many_rows_as_there_are_sites(
    rows, options, held
):
    (X, Y), route, latents = sine(rows), InducingRoute(), options.get("latents", 1)
    data, options = (
        (X, np.repeat(Y, latents, 1)),
        {name: one for name, one in options.items() if name != "latents"},
    )
    likelihood = gpflow.likelihoods.Gaussian()
    model = SOLVEGP(_kernel(), likelihood, GAMMA, BETA, num_data=rows, num_latent_gps=latents)
    plan = route.plan(model, data, route.options(model, {"steps": 1, **options}))
    assert plan.parts[0].stage.holds_sites is held


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("rows", "options", "rho"),
    [
        (40, {}, 0.5),  # "auto" has all rows in a batch
        (40, {"batch_size": None}, 0.5),
        (40, {"batch_size": 10}, 2 * 10 / (10 + 3 * 40)),  # an average over three times the data
        (40, {"batch_size": 10, "natural_gradient": 0.3}, 0.3),
        (40, {"batch_size": 10, "natural_gradient": None}, None),
    ],
)
def test_steps_of_q_are_smaller_on_small_batches(rows, options, rho):
    model, route = (
        ODVGP(_kernel(), gpflow.likelihoods.Gaussian(), GAMMA, BETA, num_data=rows),
        InducingRoute(),
    )
    plan = route.plan(model, sine(rows), route.options(model, {"steps": 1, **options}))
    stage = plan.parts[0].stage
    assert plan.rates.natural_gradient == (rho if rho is None else pytest.approx(rho))
    rule = stage.natural
    assert rule is None if rho is None else float(rule.gamma) == pytest.approx(rho)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize(
    ("likelihood", "rho"),
    [
        (gpflow.likelihoods.Poisson, 0.2),
        (gl.HurdlePoisson, 0.2),
        (lambda: gl.RowLikelihood(gpflow.likelihoods.Poisson(), ("offset",)), 0.2),
        (gl.NegativeBinomial, 0.5),
        (gl.HurdleNegativeBinomial, 0.5),
        (lambda: gpflow.likelihoods.Poisson(invlink=tf.nn.softplus), 0.5),
    ],
)
def test_steps_of_q_are_smaller_for_rates(likelihood, rho):
    """The curvature of e^f has no bound: with 1/2 large counts went further off with each batch."""
    made, route = likelihood(), InducingRoute()
    model = ODVGP(_kernel(), made, GAMMA, BETA, num_data=40)
    Y = np.repeat(np.arange(40.0)[:, None], 1 + len(getattr(made, "numbers", ())), axis=1)
    plan = route.plan(model, (sine(40)[0], Y), route.options(model, {"steps": 1}))
    assert plan.rates.natural_gradient == rho


@pytest.mark.parametrize(
    ("rows", "points", "num_data", "averaged"),
    [
        (1024, 1000, 10**6, 10_000),  # ten for each point
        (256, 90, 10**6, 3000),
        (256, 1000, 2000, 6000),  # three times the data
        (1024, 300, 10**6, None),
        (500, 20, 500, None),
    ],
)
def test_steps_of_q_average_over_enough_rows(rows, points, num_data, averaged):
    """The noise of steps of rho is that of (2 - rho) / rho batches."""
    rho = natural_step(rows, points, num_data)
    assert rho <= 0.5 if averaged is None else (2.0 - rho) / rho * rows == pytest.approx(averaged)
    assert (rho == 0.5) is (averaged is None)
