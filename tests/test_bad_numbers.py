"""Numbers that count or scale nothing: refused where they are passed, in one sentence with name,
value and fix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
import gpflow_decoupled.certificates
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    LCLGP,
    ODVGP,
    AffineIndependentGP,
    BasisGP,
    Factor,
    SparseCVIGP,
)
from gpflow_decoupled.optimizers import (
    AffineIndependentAscent,
    CholeskyKL,
    ConjugateComputation,
    ConstraintSubset,
    JaakkolaJordan,
    LinearlyConstrainedLagrangian,
    MeanFieldCVI,
    MixtureAscent,
    NaturalGradient,
    OpperArchambeau,
    collapsed_elbo,
    sweep,
)
from tests.optimizers.mean_field.mean_field_problems import gamma_poisson
from tests.training.problems import BETA, GAMMA, orthogonal, parts, sine, unchanged, values

X, Y = sine()
LABELS = (Y > 0).astype(float)


def _classifier() -> ODVGP:
    return ODVGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Bernoulli(),
        GAMMA,
        BETA,
        num_data=60,
    )


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("gamma", [-0.5, 0, 0.0, 2, float("nan"), True, np.True_, "1", None])
def test_step_sizes_of_natural_gradients(gamma: object) -> None:
    with pytest.raises(DataError, match=r"gamma=.* must be a number above 0 and at most 1\."):
        NaturalGradient(gamma)
    with pytest.raises(DataError, match=r"mean_step=.* must be a number above 0\."):
        NaturalGradient(mean="natural", mean_step=-1.0)
    if isinstance(gamma, (int, float)) and not isinstance(gamma, bool):
        model = orthogonal(num_data=60)
        before = values(model)
        for given in (tf.Variable(gamma, dtype=tf.float64), lambda: gamma):
            with pytest.raises(
                DataError, match=r"gamma=.* must be a number above 0 and at most 1\."
            ):
                NaturalGradient(given).minimize(model, (X, Y))
        assert unchanged(before, model)


@pytest.mark.parametrize(
    "options", [{"rank": 0}, {"cg_iterations": -1}, {"cg_tolerance": 0.0}, {"rank": True}]
)
def test_numbers_of_the_newton_step(options: dict) -> None:
    with pytest.raises(DataError, match=f"{next(iter(options))}=.* must be a"):
        NaturalGradient(mean="newton", **options)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("num_data", [0, -3, True, 2.5, float("nan"), "60"])
def test_sizes_of_the_data_set(num_data: object) -> None:
    message = (
        r"num_data=.* must be a whole number of at least 1, the rows of the whole data set; leave"
        r" it out"
    )
    makes: list[Callable[[], object]] = [
        lambda: orthogonal(num_data=num_data),
        lambda: SparseCVIGP(*parts(), BETA, num_data=num_data),
        lambda: CVIGLM((X, Y), gpflow.likelihoods.Gaussian(), num_data=num_data),
    ]
    for make in makes:
        with pytest.raises(DataError, match=message):
            make()
    model = orthogonal()
    model.num_data = num_data
    with pytest.raises(DataError, match=message):
        model.elbo((X, Y))


def test_sizes_that_are_numbers_are_taken() -> None:
    expected = orthogonal(num_data=60).elbo((X, Y))
    for num_data in (np.int64(60), 60.0, tf.constant(60), tf.Variable(60.0)):
        assert float(orthogonal(num_data=num_data).elbo((X, Y))) == float(expected)


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
def test_numbers_of_latent_functions(number: object) -> None:
    for make in (
        lambda: ODVGP(*parts(), GAMMA, BETA, num_latent_gps=number),
        lambda: SparseCVIGP(*parts(), BETA, num_latent_gps=number),
        lambda: CVIGP((X, Y), *parts(), num_latent_gps=number),
        lambda: LCLGP((X, Y), *parts(), num_latent_gps=number),
        lambda: CVIGLM((X, Y), gpflow.likelihoods.Gaussian(), num_latent_gps=number),
    ):
        with pytest.raises(
            DataError, match=r"num_latent_gps=.* must be a whole number of at least 1\."
        ):
            make()


@pytest.mark.parametrize("steps", [-3, 0, True, 2.0])
def test_numbers_of_steps(steps: object) -> None:
    model = CVIGP((X, Y), *parts())
    with pytest.raises(DataError, match=r"steps=.* must be a whole number of at least 1\."):
        ConjugateComputation().run(model, steps=steps)
    with pytest.raises(DataError, match=r"steps=.* must be a whole number of at least 1\."):
        MeanFieldCVI().run(gamma_poisson(), steps=steps)
    with pytest.raises(DataError, match=r"batch_size=.* must be from 1 to .* 60"):
        ConjugateComputation().run(model, batch_size=steps if steps != 2.0 else 2.5)
    with pytest.raises(
        DataError, match=r"samples=.* must be a whole number of at least 1, or None"
    ):
        ConjugateComputation(samples=steps)
    with pytest.raises(DataError, match=r"tolerance=-1.0 must be a number above 0\."):
        ConjugateComputation().run(model, tolerance=-1.0)
    with pytest.raises(DataError, match="step_size=True|step_size='1'|step_size=0"):
        ConjugateComputation({-3: "1", 0: 0}.get(steps, np.True_))
    with pytest.raises(DataError, match=r"num_samples=.*; pass a whole number of at least 1\."):
        gd.pathwise.pathwise_samples(model, steps)
    with pytest.raises(DataError, match=r"M=.* must be an integer, at least 1\."):
        gd.inducing.select(X, steps, model.kernel)
    with pytest.raises(DataError, match=r"num_samples=.* must be a whole number, at least 1\."):
        gd.models.MonteCarlo(steps)


BOUNDS = ["elbo", "training_loss", "maximum_log_likelihood_objective"]


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("verb", BOUNDS)
def test_bounds_check_values(verb: str) -> None:
    model = _classifier()
    with pytest.raises(
        DataError, match=r"Y\[\d+, 0\] = -1 is outside the support of Bernoulli, which takes 0 or 1"
    ):
        getattr(model, verb)((X, 2 * LABELS - 1))
    broken = X.copy()
    broken[4, 0] = np.nan
    with pytest.raises(DataError, match=r"X\[4, 0\] is nan; remove or impute"):
        getattr(model, verb)((broken, LABELS))
    compiled = tf.function(lambda y: getattr(model, verb)((X, y)), autograph=False)
    assert np.isfinite(compiled(tf.constant(LABELS)))  # inside a graph there are no values to check


def test_optimizers_and_closed_forms_check_values() -> None:
    model, bad = BasisGP(*parts(), gd.bases.CoupledBasis(BETA), num_data=60), Y.copy()
    bad[7, 0] = np.nan
    before = values(model)
    for use in (
        lambda: collapsed_elbo(model, (X, bad)),
        lambda: NaturalGradient().minimize(model, (X, bad)),
        lambda: sweep(model, (X, bad)),
    ):
        with pytest.raises(DataError, match=r"Y\[7, 0\] is nan; remove or impute the 1 rows"):
            use()
    assert unchanged(before, model)


SETTINGS: list[tuple[Callable[..., object], dict[str, object]]] = [
    (LinearlyConstrainedLagrangian, {"theta": True}),
    (LinearlyConstrainedLagrangian, {"tolerance": True}),
    (LinearlyConstrainedLagrangian, {"tolerance": float("inf")}),
    (LinearlyConstrainedLagrangian, {"trust_region": True}),
    (LinearlyConstrainedLagrangian, {"sweeps": True}),
    (LinearlyConstrainedLagrangian, {"max_outer": True}),
    (LinearlyConstrainedLagrangian, {"max_outer": 2.5}),
    (OpperArchambeau, {"tolerance": True}),
    (OpperArchambeau, {"max_evaluations": True}),
    (CholeskyKL, {"tolerance": True}),
    (CholeskyKL, {"max_evaluations": 10.5}),
    (ConstraintSubset, {"size": True}),
    (partial(ConstraintSubset, 3), {"batch_size": True}),
    (partial(ConstraintSubset, 3), {"steps": True}),
    (partial(ConstraintSubset, 3), {"learning_rate": True}),
    (partial(ConstraintSubset, 3), {"tolerance": True}),
    (JaakkolaJordan, {"tolerance": True}),
    (JaakkolaJordan, {"max_steps": True}),
    (MixtureAscent, {"components": True}),
    (MixtureAscent, {"tolerance": True}),
    (AffineIndependentAscent, {"tolerance": True}),
    (AffineIndependentAscent, {"max_evaluations": True}),
    (gd.training.Schedule, {"anneal": True}),
    (gd.training.Schedule, {"anneal": False}),
    (gd.training.Schedule, {"ramp_steps": True}),
    (gd.training.MeanSolver, {"learning_rate": True}),
    (gd.training.Evaluation, {"patience": True}),
]


@pytest.mark.parametrize("make, options", SETTINGS)
def test_booleans_and_infinities_are_no_settings(
    make: Callable[..., object], options: dict[str, object]
) -> None:
    (name,) = options
    with pytest.raises(DataError, match=f"{name}=.* must be a"):
        make(**options)


@pytest.mark.parametrize(
    "options", [{"batch_size": True}, {"learning_rate": True}, {"seed": True}, {"seconds": True}]
)
def test_booleans_are_no_options_of_fit(options: dict[str, object]) -> None:
    model = orthogonal()
    before = values(model)
    with pytest.raises(DataError, match=f"{next(iter(options))}=True must be a"):
        gd.fit(model, (X, Y), steps=1, progress=False, **options)
    assert unchanged(before, model)


def test_numbers_of_a_certificate() -> None:
    for options, message in (
        ({"delta": True}, "delta=True; .* number between 0 and 1"),
        ({"settings": True}, "settings=True; use the number"),
    ):
        with pytest.raises(DataError, match=message):
            gd.certificates.pac_bayes_certificate(_classifier(), (X, LABELS), **options)
    for given, message in (
        ({"fraction": True}, "fraction=True"),
        ({"seed": True}, "seed=True must be a whole"),
    ):
        with pytest.raises(DataError, match=message):
            gd.certificates.split_for_certificate((X, LABELS), **given)


@pytest.mark.parametrize("value", ["fast", 0.0, -1.0, float("nan"), float("inf"), [0.1]])
def test_numbers_of_the_lagrangian(value: object) -> None:
    for name in ("tolerance", "trust_region"):
        with pytest.raises(DataError, match=rf"{name}=.* must be a number above 0\."):
            LinearlyConstrainedLagrangian(**{name: value})
    for name in ("tolerance", "learning_rate"):
        with pytest.raises(DataError, match=rf"{name}=.* must be a number above 0\."):
            ConstraintSubset(size=3, **{name: value})
    with pytest.raises(DataError, match=r"sweeps=.* must be a whole number of at least 0"):
        LinearlyConstrainedLagrangian(sweeps=1.5)
    with pytest.raises(DataError, match=r"size=.* must be a whole number of at least 1"):
        ConstraintSubset(size="3")


@pytest.mark.parametrize(
    "options", [{"frequencies": 0}, {"points": 0}, {"memory": np.inf}, {"memory": [0.1]}]
)
def test_numbers_of_integrals(options: dict) -> None:
    with pytest.raises(DataError, match=f"{next(iter(options))}=.* must be a"):
        AffineIndependentGP((X, LABELS), gpflow.kernels.Matern52(), BernoulliLogit(), **options)


MASKED = np.ma.MaskedArray(Y, np.arange(60)[:, None] == 7)


def test_arrays_that_only_look_like_numbers() -> None:
    """NumPy parses text and drops masks: the rule for arrays is the same wherever one is passed."""
    for bad, message in ((Y.astype(str), "holds string values"), (MASKED, "1 masked entries")):
        with pytest.raises(DataError, match=message):
            Factor("z", lambda z, y: z, data=bad)
        with pytest.raises(DataError, match=message):
            gd.Standardized(lambda X, Y: orthogonal(), (X, bad))
        with pytest.raises(DataError, match=message):
            gd.certificates.split_for_certificate((X, bad))
    with pytest.raises(DataError, match="Y is a NoneType"):
        gd.certificates.split_for_certificate((X, None))
    with pytest.raises(DataError, match="X has no columns"):
        gd.Standardized(lambda X, Y: orthogonal(), (X[:, :0], Y))
    counts = np.ones((4, 3), int)
    for documents, message in (
        (counts.astype(str), "X holds <U21 values; it must be a matrix"),
        (
            np.ma.MaskedArray(counts, counts * np.eye(4, 3)),
            "X has masked entries; they must be counts",
        ),
    ):
        with pytest.raises(DataError, match=message):
            gd.topics.LatentDirichletAllocation(2).fit(documents)


@pytest.mark.parametrize("value", [3, [1], {"a": 1}])
def test_objects_of_fit(value: object) -> None:
    for name, message in (
        ("schedule", "schedule is a .*; pass a training.Schedule"),
        ("checkpoint", "is no folder; pass"),
    ):
        with pytest.raises(DataError, match=message):
            gd.fit(orthogonal(), (X, Y), steps=1, progress=False, **{name: value})


def test_masks_are_seen_by_scores_and_certificates() -> None:
    classifier = CVIGP((X, LABELS), gpflow.kernels.Matern52(), BernoulliLogit())
    labels = np.ma.MaskedArray(LABELS, MASKED.mask)
    for X_given, Y_given in ((X, labels), (np.ma.MaskedArray(X, MASKED.mask), LABELS)):
        with pytest.raises(DataError, match="[XY] has 1 masked entries"):
            gd.pac_bayes_certificate(classifier, (X_given, Y_given), hyperparameters="fixed")
        with pytest.raises(DataError, match="[XY] has 1 masked entries"):
            gd.training.held_out_metrics(classifier, (X_given, Y_given))
    with pytest.raises(DataError, match="settings=True; use the number of settings"):
        gd.pac_bayes_certificate(classifier, (X, LABELS), hyperparameters="fixed", settings=True)
    with pytest.raises(DataError, match="X has 1 masked entries"):
        gd.training.Standardization(X, "X").transform(np.ma.MaskedArray(X, MASKED.mask))
