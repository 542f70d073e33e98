"""Certificates of every classifier: error rates and KL[Q || P] against dense references, and what
is said of conditions.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import SVGP, VGP
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.certificates import (
    classifier_errors,
    pac_bayes_certificate,
    select_by_certificate,
    split_for_certificate,
)
from gpflow_decoupled.errors import DataError, ModelError, NumericalError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    LCLGLM,
    LCLGP,
    ODVGP,
    AffineIndependentGP,
    BasisGP,
    FactorGraph,
    SparseCVIGP,
)
from tests.bounds.registry import CASES, OWNERS, matern, numpy_kernel, randomize
from tests.reference import decoupled as dec
from tests.reference import grams as gr
from tests.reference import pac_bayes as ref

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(24, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:8], POINTS[8:]
Y = (np.random.default_rng(4).uniform(size=(16, 1)) < 0.6).astype(float)
DATA = (X, Y)
JITTER = 0.2
"""One that cannot be overlooked, to show that divergence and predictions have the same."""


def _expected(
    mean: np.ndarray, cov: np.ndarray, kl: float, delta: float = 0.05
) -> dict[str, float]:
    risk = ref.gibbs_risk(Y[:, 0], mean, np.diag(cov))
    least = {name: min(value, 1.0) for name, value in ref.bounds(risk, kl, len(Y), delta).items()}
    return {"gibbs_error": risk, "kl": kl, **least}


def _fixed(model: Any, data: Any = DATA, *args: Any, **options: Any) -> Any:
    return pac_bayes_certificate(model, data, *args, **{"hyperparameters": "fixed", **options})


def _check(
    certificate: gd.certificates.PacBayesCertificate, expected: dict[str, float], rtol: float = 1e-8
) -> None:
    for name, value in expected.items():
        assert_allclose(getattr(certificate, name), value, rtol=rtol, err_msg=name)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", CASES)
def test_every_basis(name: str) -> None:
    """Risk and divergence of the joint law of (u, f), with a mean function; bases on the data in
    the model that owns them.
    """
    gpflow.config.set_default_jitter(JITTER)
    case, kernel = CASES[name], matern(1.3, 0.8)
    slope = gpflow.functions.Linear(np.array([[0.4], [-0.3]]), np.array([0.2]))
    basis = case.build(kernel, 1, GAMMA, BETA)
    randomize(basis, np.random.default_rng(0))
    if case.basis in OWNERS:
        model: Any = (CVIGP if "site" in name else LCLGP)(
            DATA, kernel, BernoulliLogit(), mean_function=slope
        )
        model.basis = basis
    else:
        model = BasisGP(kernel, BernoulliLogit(), basis, mean_function=slope)
    jitters = [JITTER if needed else 0.0 for needed in (case.jitters_beta, case.jitters_gamma)]
    k = gr.build_grams(numpy_kernel(kernel, 0), X, BETA, GAMMA, *jitters)
    parameters = case.parameters(basis, basis.factor(kernel), k, 0)
    q = case.family(k, *parameters)
    kl = dec.brute_force_process_kl(case.family, k, *parameters)
    mean = q.mean + (X @ [[0.4], [-0.3]])[:, 0] + 0.2
    certificate = _fixed(model)
    _check(certificate, _expected(mean, q.cov, kl))
    assert certificate.bayes_error == np.mean((2 * Y[:, 0] - 1) * mean <= 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whitened"])
def test_a_sampled_norm_is_computed_in_full(scaling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of any size, and also where the frozen scaling is that of another kernel."""
    parts, options = (
        (matern(1.3, 0.8), BernoulliLogit(), POINTS[4:20], BETA),
        {"mean_scaling": scaling},
    )
    model, full = (ODVGP(*parts, **options, mean_subsample=rows) for rows in (3, None))
    for one in (model, full):
        randomize(one.basis, np.random.default_rng(1))
        one.kernel.lengthscales.assign(1.1)
    expected = _fixed(full).kl
    assert abs(float(model.prior_kl()) - expected) > 1e-3
    for rows in (5, 16, 4096):
        monkeypatch.setattr("gpflow_decoupled.certificates.certificate._DIVERGENCE_ROWS", rows)
        assert _fixed(model).kl == pytest.approx(expected, rel=1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("whiten", [True, False])
def test_gpflows_own_sparse_model_with_orthogonal_points_of_no_weight(whiten: bool) -> None:
    """SVGP, our coupled model, and the orthogonal one with a_gamma = 0 have the same
    certificate.
    """
    rng = np.random.default_rng(2)
    root = np.tril(rng.normal(size=(1, 4, 4))) + 2.0 * np.eye(4)
    q = {"q_mu": rng.normal(size=(4, 1)), "q_sqrt": root, "whiten": whiten}
    theirs = SVGP(matern(1.3, 0.8), gpflow.likelihoods.Bernoulli(), BETA, **q)
    bases = gd.bases.CoupledBasis(BETA, **q), gd.bases.OrthogonalBasis(GAMMA, BETA, **q)
    ours = [BasisGP(theirs.kernel, theirs.likelihood, basis) for basis in bases]
    first = {k: v for k, v in dataclasses.asdict(_fixed(theirs)).items() if isinstance(v, float)}
    for other in ours:
        _check(_fixed(other), first)


@pytest.mark.exhaustive
def test_full_models_agree_with_each_other_and_with_the_general_formula() -> None:
    """CVIGP, LCLGP and GPflow's VGP at one posterior; sparse on Z = X too. KL by 1/2
    [a^T K a + tr + log det].
    """
    gpflow.config.set_default_jitter(1e-10)
    kernel, likelihood, n = matern(1.3, 0.8), BernoulliProbit(), len(X)
    model = CVIGP(DATA, kernel, likelihood)
    rng = np.random.default_rng(5)
    model.basis.nu.assign(rng.normal(size=(n, 1)))
    model.basis.tau.assign(rng.uniform(0.1, 1.0, size=(n, 1)))
    K = gr.matern32(X, X, 1.3, 0.8)
    cov = np.linalg.inv(np.linalg.inv(K) + np.diag(model.basis.tau.numpy()[:, 0]))
    mean = cov @ model.basis.nu.numpy()[:, 0]
    alpha = np.linalg.solve(K, mean)
    expected = _expected(mean, cov, ref.function_kl(K, alpha, cov))
    dual = LCLGP(DATA, kernel, likelihood)
    dual.basis.alpha.assign(-alpha[:, None])
    dual.basis.lam.assign(model.basis.tau)
    root = np.linalg.cholesky(K)
    whitened = np.linalg.solve(root, np.linalg.solve(root, cov).T)
    q = {"q_mu": np.linalg.solve(root, mean)[:, None], "q_sqrt": np.linalg.cholesky(whitened)[None]}
    theirs = VGP(DATA, kernel, likelihood)
    for name, value in q.items():
        getattr(theirs, name).assign(value)
    sparse = BasisGP(kernel, likelihood, gd.bases.CoupledBasis(X, **q))
    for one in (model, dual, theirs, sparse):
        _check(_fixed(one), expected, 1e-6)


@pytest.mark.exhaustive
def test_linear_models() -> None:
    """In weight space and in function space: KL of the weights, from the posterior that the model
    itself tells.
    """
    weights = {}
    for form in ("weight", "function"):
        model = CVIGLM(DATA, BernoulliLogit(), form=form, intercept_variance=4.0)
        if form == "function":
            model.basis.nu.assign(Y - 0.3)
        certificate = pac_bayes_certificate(model, DATA)
        m, V = (np.asarray(part) for part in gd.models.weights_posterior(model))
        P = np.diag([1.0, 1.0, 4.0])
        features = np.hstack([X, np.ones((len(X), 1))])
        kl = ref.function_kl(P, np.linalg.solve(P, m), V)
        _check(certificate, _expected(features @ m, features @ V @ features.T, kl), 1e-7)
        weights[form] = certificate
        assert certificate.hyperparameters == "fixed"  # its prior is not trainable
    assert weights["weight"].kl != weights["function"].kl
    assert pac_bayes_certificate(LCLGLM(DATA, BernoulliLogit()), DATA).kl == pytest.approx(
        0.0, abs=1e-12
    )


def test_posterior_equal_to_the_prior() -> None:
    for model in (
        SparseCVIGP(matern(1.0, 1.0), BernoulliLogit(), BETA),
        VGP(DATA, matern(1.0, 1.0), BernoulliLogit()),
    ):
        certificate = _fixed(model)
        assert certificate.kl == pytest.approx(0.0, abs=1e-12)
        assert certificate.gibbs_error == pytest.approx(0.5, abs=1e-12)
        assert certificate.bound >= 0.5 and certificate.bayes_bound == 1.0


def _classifier(**options: Any) -> CVIGP:
    model = CVIGP(DATA, matern(4.0, 1.0), BernoulliLogit(), **options)
    model.basis.nu.assign(3.0 * Y - 1.5)
    model.basis.tau.assign(np.ones_like(Y))
    return model


def test_rates_are_those_of_draws_and_of_predicted_labels() -> None:
    model, inputs = _classifier(), np.tile(X, (1000, 1))
    errors = classifier_errors(model, DATA)
    mean, variance = (np.asarray(part) for part in model.predict_f(inputs))
    drawn = mean + np.sqrt(variance) * np.random.default_rng(1).standard_normal(mean.shape)
    wrong = np.mean((drawn > 0.0) != np.tile(Y, (1000, 1)))
    assert wrong == pytest.approx(errors.gibbs, abs=5.0 * np.sqrt(0.25 / len(inputs)))
    assert errors.bayes == np.mean((model.predict_y(X)[0].numpy() > 0.5) != Y)


def test_what_is_certain_and_what_is_undecided() -> None:
    """A linear model knows f(0) = 0: no classifier decides there, and all of them count it as an
    error.
    """
    data = (np.array([[0.0], [1.0], [-1.0]]), np.array([[0.0], [1.0], [0.0]]))
    model = BasisGP(
        gpflow.kernels.Linear(),
        BernoulliLogit(),
        gd.bases.CoupledBasis(np.ones((1, 1)), q_mu=np.array([[2.0]])),
    )
    assert classifier_errors(model, (data[0][:1], data[1][:1])) == (1.0, 1.0)
    errors = classifier_errors(model, data)
    assert errors.bayes == pytest.approx(1 / 3) and errors.gibbs > errors.bayes


def test_a_certificate_can_be_read_and_not_changed() -> None:
    certificate = pac_bayes_certificate(
        _classifier(), DATA, 0.1, hyperparameters="fixed", settings=4
    )
    text = str(certificate)
    assert "n = 16, delta = 0.1 / 4 settings" in text and "did not depend on the data" in text
    for value in (certificate.kl, certificate.seeger, certificate.maurer, certificate.mcallester):
        assert f"{value:.4f}" in text
    one = pac_bayes_certificate(_classifier(), DATA, 0.025, hyperparameters="fixed")
    for name in ("seeger", "maurer", "mcallester"):
        assert getattr(one, name) == getattr(certificate, name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.seeger = 0.0  # type: ignore[misc]


@pytest.mark.exhaustive
def test_where_the_prior_comes_from() -> None:
    model = _classifier()
    with pytest.warns(UserWarning, match=r"kernel \(2 Parameters\) can be trained, and it is not"):
        unknown = pac_bayes_certificate(model, DATA)
    assert unknown.holds is None and "is not known" in str(unknown)
    with pytest.warns(UserWarning, match="were learned on these data. The prior then depends on"):
        fitted = pac_bayes_certificate(model, DATA, hyperparameters="same-data")
    assert fitted.holds is False and "not bounds on the risk" in str(fitted)
    with pytest.warns(UserWarning, match="3 of the 16 rows are also in learned_on"):
        shared = pac_bayes_certificate(
            model, DATA, learned_on=(X[:3], Y[:3]), hyperparameters="split"
        )
    assert shared.hyperparameters == "same-data"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = pac_bayes_certificate(model, DATA, learned_on=(X + 1.0, Y))
        assert other.hyperparameters == "split" and other.holds and other.seeger == fitted.seeger
        assert _fixed(model).holds
        gpflow.set_trainable(model.kernel, False)
        assert pac_bayes_certificate(model, DATA).hyperparameters == "fixed"
    slope = _classifier(mean_function=gpflow.functions.Linear(np.zeros((2, 1))))
    gpflow.set_trainable(slope.kernel, False)
    with pytest.warns(UserWarning, match=r"^mean_function \(2 Parameters\) can be trained"):
        pac_bayes_certificate(slope, DATA)


def test_inducing_inputs_belong_to_the_posterior() -> None:
    model = SparseCVIGP(matern(1.0, 1.0), BernoulliLogit(), BETA)
    gpflow.set_trainable(model.kernel, False)
    assert model.trainable_parameters  # the inducing inputs
    assert pac_bayes_certificate(model, DATA).hyperparameters == "fixed"


class _Skewed(gpflow.likelihoods.Bernoulli):
    """A complementary log-log link."""

    def __init__(self) -> None:
        super().__init__(invlink=lambda f: 1.0 - tf.exp(-tf.exp(f)))


def _sparse(likelihood: Any, latents: int = 1) -> BasisGP:
    return BasisGP(matern(1.0, 1.0), likelihood, gd.bases.CoupledBasis(BETA, latents))


GUESS = "hyperparameters='good' is not known; use one of 'fixed', 'split', 'same-data'"
CALLS: dict[str, tuple[Any, dict, type[Exception], str]] = {
    "delta of 0": (DATA, {"delta": 0.0}, DataError, "delta=0.0; .* number between 0 and 1"),
    "delta of 1": (DATA, {"delta": 1.0}, DataError, "delta=1.0; the bound holds with"),
    "no settings": (DATA, {"settings": 0}, DataError, "settings=0 must be a whole number"),
    "another origin": (DATA, {"hyperparameters": "good"}, UnknownOptionError, GUESS),
    "labels -1 and 1": (
        (X, 2 * Y - 1),
        {},
        DataError,
        "BernoulliLogit, which takes 0 or 1; recode",
    ),
    "three labels": ((X, Y + np.eye(16)[:, :1] * 2), {}, DataError, "takes 0 or 1; recode Y"),
    "no rows": ((X[:0], Y[:0]), {}, DataError, "X and Y have no rows"),
    "no pair": (X, {}, DataError, r"data is a ndarray; pass \(X, Y\)"),
    "Y of rank 1": ((X, Y[:, 0]), {}, DataError, r"Y has shape \(16,\); use Y\[:, None\]"),
    "NaN": ((X * np.nan, Y), {}, DataError, r"X\[0, 0\] is nan"),
    "three inputs": ((np.tile(X, 2), Y), {}, DataError, "X has 4 columns and .* have 2"),
    "learned_on": (
        DATA,
        {"hyperparameters": None, "learned_on": (X[:, :1], Y)},
        DataError,
        "learned_on has 2 columns in X and Y together, and data has 3: pass",
    ),
}
MODELS: dict[str, tuple[Any, type[Exception], str]] = {
    "regression": (
        lambda: _sparse(gpflow.likelihoods.Gaussian()),
        DataError,
        "is not a likelihood",
    ),
    "three classes": (
        lambda: _sparse(gpflow.likelihoods.MultiClass(3), 3),
        DataError,
        "MultiClass is not a likelihood of two classes: .* of one class against the rest",
    ),
    "two latents": (lambda: _sparse(BernoulliLogit(), 2), DataError, "The model has 2 latent func"),
    "skewed": (lambda: _sparse(_Skewed()), DataError, "The link of _Skewed is not symmetric"),
    "no Gaussian": (
        lambda: AffineIndependentGP((X[:4], Y[:4]), matern(1.0, 1.0), BernoulliLogit()),
        ModelError,
        "The marginals of an AffineIndependentGP are not Gaussian, .* use CVIGP or LCLGP with",
    ),
    "no model": (lambda: None, ModelError, "take a model of .* and got NoneType"),
    "a factor graph": (
        lambda: FactorGraph({}, {}),
        ModelError,
        r"FactorGraph, .* no latent function .* use CVIGP\(\(X, Y\), kernel, BernoulliLogit\(\)\)",
    ),
    "another model": (
        lambda: gpflow.models.VGPOpperArchambeau(DATA, matern(1.0, 1.0), BernoulliLogit()),
        ModelError,
        r"KL\[Q \|\| P\] of a VGPOpperArchambeau is not known: .* takes .* use CVIGP or LCLGP",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_refused(name: str) -> None:
    data, options, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        pac_bayes_certificate(_classifier(), data, **{"hyperparameters": "fixed", **options})


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_refused(name: str) -> None:
    make, error, message = MODELS[name]
    with pytest.raises(error, match=message):
        _fixed(make())


def test_a_posterior_that_is_not_finite_is_an_error() -> None:
    model = _sparse(BernoulliLogit())
    model.basis.q_mu.unconstrained_variable.assign(np.full((4, 1), np.nan))
    with pytest.raises(NumericalError, match="model.basis.q_mu has entries that are NaN"):
        _fixed(model)


# --- a split, and a choice


def test_split() -> None:
    data = np.arange(101.0)[:, None], (np.arange(101) < 30).astype(int)[:, None]
    (first, first_labels), (second, second_labels) = split_for_certificate(data, 0.3, seed=5)
    assert len(first) == 30 and sorted([*first[:, 0], *second[:, 0]]) == list(range(101))
    assert np.array_equal(first_labels, first < 30) and np.array_equal(second_labels, second < 30)
    assert np.array_equal(first, split_for_certificate(data, 0.3, seed=5)[0][0])
    assert not np.array_equal(first, split_for_certificate(data, 0.3, seed=6)[0][0])
    counts = [split_for_certificate(data, 0.3, seed=seed)[0][1].sum() for seed in range(20)]
    assert min(counts) < 9 < max(counts)  # independent draws: the number of each class is random


ROWS = np.arange(101.0)[:, None]
SPLITS = [
    *(((ROWS, np.zeros((101, n))), 0.3, f"Y has {n} columns; certificates are") for n in (0, 2)),
    *(
        ((ROWS, ROWS), share, "fraction=.*; use a number between 0 and 1")
        for share in (0, 1.0, -1.0)
    ),
    ((ROWS[:2], ROWS[:2]), 0.1, "fraction=0.1 of 2 rows leaves one part empty"),
    ((ROWS, ROWS[:2]), 0.5, "X has 101 rows and Y has 2; they must be the same observations"),
]


@pytest.mark.parametrize("data, fraction, message", SPLITS)
def test_what_cannot_be_split(data: Any, fraction: float, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_for_certificate(data, fraction)


def test_the_least_of_bounds_at_a_share_of_delta_wins() -> None:
    """Scales too short to generalise, right, and too long to fit; with sites of a regression on the
    labels, near enough to the best.
    """
    rng, scales = np.random.default_rng(0), [0.02, 1.0, 60.0]
    inputs = rng.uniform(-3.0, 3.0, (250, 1))
    chances = 1.0 / (1.0 + np.exp(-6.0 * np.sin(inputs)))
    labels = (rng.uniform(size=inputs.shape) < chances).astype(int)
    data, test = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])

    def build(lengthscale: float) -> CVIGP:
        model = CVIGP(data, gpflow.kernels.SquaredExponential(4.0, lengthscale), BernoulliLogit())
        model.basis.nu.assign(data[1] - 0.5)
        model.basis.tau.assign(np.full(data[1].shape, 0.25))
        return model

    selection = select_by_certificate(build, scales, data, 0.05, test=test)
    options = {"hyperparameters": "fixed"}
    alone = [pac_bayes_certificate(build(one), data, 0.05 / 3, **options).bound for one in scales]
    assert [one.bound for one in selection.certificates] == alone
    assert selection.best == 1 == int(np.argmin(alone)) and selection.certificate.settings == 3
    assert float(selection.model.kernel.lengthscales.numpy()) == pytest.approx(1.0)
    held_out = [one.gibbs for one in selection.test_errors]
    assert np.argmin(held_out) == 1 and np.all(np.array(alone) > held_out)
    assert selection.log_evidence[1] == pytest.approx(float(build(1.0).elbo()))
    table = str(selection).splitlines()
    assert [line[0] for line in table[1:]] == [" ", "*", " "]


def test_a_choice_of_models_that_own_no_data() -> None:
    def build(variance: float) -> SparseCVIGP:
        return SparseCVIGP(matern(variance, 1.0), BernoulliLogit(), BETA, num_data=16)

    selection = select_by_certificate(build, (1.0, 4.0), (X, Y.astype(int)))
    assert selection.test_errors == () and np.all(np.isfinite(selection.log_evidence))
    with pytest.raises(DataError, match="settings is empty; name at least one"):
        select_by_certificate(build, [], DATA)
