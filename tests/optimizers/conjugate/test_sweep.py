"""Passes over blocks of data are natural-gradient steps on all of it, in bounded memory, and end at
the fixed point.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import HybridBasis, OrthogonalBasis
from gpflow_decoupled.errors import DataError, ModelError, NumericalError, UnknownOptionError
from gpflow_decoupled.inducing import LinearWeights, Weights
from gpflow_decoupled.models import BasisGP, SparseCVIGP
from gpflow_decoupled.optimizers import NaturalGradient, sweep
from tests.bounds.registry import matern, numpy_kernel
from tests.optimizers.problems import BETA, GAMMA, JITTER, TREND, X, observations
from tests.reference import conjugate as cvi
from tests.reference import likelihoods as lik
from tests.reference import sparse_conjugate as sp
from tests.training.problems import unchanged, values

N = len(X)
LIKELIHOODS = {
    "gaussian": (lambda: gl.Gaussian(0.3), lik.gaussian(0.3), 100),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit(), 20),
    "poisson": (gl.Poisson, lik.poisson(), 100),
}
names = pytest.mark.parametrize("name", LIKELIHOODS)


def _model(
    name: str = "logit", points: Any = BETA, latents: int = 1, **options: Any
) -> tuple[SparseCVIGP, tuple]:
    gpflow.config.set_default_jitter(JITTER)
    likelihood = LIKELIHOODS[name][0]()
    options = {"mean_function": TREND, "num_latent_gps": latents, **options}
    return SparseCVIGP(matern(1.3, 0.8), likelihood, points, **options), (
        X,
        observations(likelihood, latents),
    )


def _sweep(model: Any, data: Any, **options: Any) -> Any:
    return sweep(model, data, **{"block": 4, "compile": False, **options})


def _same_q(model: Any, twin: Any, tolerance: float = 1e-10) -> None:
    assert_allclose(model.basis.q_mu, twin.basis.q_mu, rtol=tolerance, atol=tolerance)
    assert_allclose(model.basis.q_sqrt, twin.basis.q_sqrt, rtol=tolerance, atol=tolerance)


@pytest.mark.exhaustive
@names
@pytest.mark.parametrize(("block", "rho"), [(1, 1.0), (4, 0.5), (100, 0.7)])
def test_a_pass_is_a_natural_gradient_step_on_all_data(name, block, rho):
    model, data = _model(name, latents=2, mean_function=None)
    model.basis.q_mu.assign(0.3 * np.random.default_rng(0).normal(size=(4, 2)))
    twin = copy.deepcopy(model)
    result = _sweep(model, data, passes=1, block=block, step_size=rho)
    twin.num_data = N
    NaturalGradient(rho).minimize(twin, data)
    _same_q(model, twin)
    assert result.steps == 1 and result.reason == "passes done" and np.isnan(result.elbo)
    assert model.num_data == N


@pytest.mark.exhaustive
@names
def test_it_ends_at_the_fixed_point(name):
    model, data = _model(name)
    result = _sweep(model, data, tolerance=1e-18)
    k = numpy_kernel(model.kernel, 0)
    matrices = k(BETA, BETA) + JITTER * np.eye(4), k(BETA, X), np.diag(k(X, X))
    expect = cvi.quadrature(LIKELIHOODS[name][1], data[1][:, 0], LIKELIHOODS[name][2])
    trend = TREND(X).numpy()[:, 0]
    sites = sp.run(*matrices, expect, trend)
    for ours, reference in zip(model.sites(), (sites.lambda1[:, None], sites.Lambda2[None])):
        assert_allclose(ours, reference, rtol=1e-6, atol=1e-6)
    assert_allclose(result.elbo, sp.projected_bound(*matrices, sites, expect, trend), rtol=1e-10)
    assert result.reason == "converged"
    assert_allclose(result.elbo, model.elbo(data), rtol=1e-12)


@pytest.mark.exhaustive
def test_gaussian_noise_needs_one_step():
    model, data = _model("gaussian")
    result = _sweep(model, data)
    assert result.steps == 1 and result.reason == "converged"
    sgpr = gpflow.models.SGPR(data, matern(1.3, 0.8), BETA, mean_function=TREND, noise_variance=0.3)
    assert_allclose(result.elbo, sgpr.elbo(), rtol=1e-9)


@pytest.mark.exhaustive
def test_history_is_that_of_the_steps():
    model, data = _model("poisson")
    model.num_data = N
    twin, before = copy.deepcopy(model), model.elbo(data)
    result = _sweep(model, data, step_size=0.5)
    assert len(result.history["elbo"]) == result.steps > 5
    bounds, changes = [], []
    for _ in range(3):
        theta, precision = _naturals(twin)
        NaturalGradient(0.5).minimize(twin, data)
        bounds.append(float(twin.elbo(data)))
        new = _naturals(twin)
        changes.append((np.sum((new[0] - theta) ** 2) + np.sum((new[1] - precision) ** 2)) / 0.5**2)
    assert_allclose(result.history["elbo"][:3], bounds, rtol=1e-10)
    assert_allclose(result.history["change"][:3], changes, rtol=1e-7)
    assert bounds[0] > before and np.all(np.diff(result.history["seconds"]) > 0)
    assert np.array_equal(result.history["step_size"], np.full(result.steps, 0.5))


def _naturals(model: Any) -> tuple[np.ndarray, np.ndarray]:
    root = model.basis.q_sqrt.numpy()[0]
    precision = np.linalg.inv(root @ root.T)
    return precision @ model.basis.q_mu.numpy()[:, 0], precision


@pytest.mark.exhaustive
def test_tolerance_is_the_distance_of_the_bound_in_nats():
    model, data = _model("poisson")
    best = _sweep(copy.deepcopy(model), data, tolerance=1e-16).elbo
    for tolerance in (1.0, 1e-2, 1e-5):
        gap = best - _sweep(copy.deepcopy(model), data, tolerance=tolerance).elbo
        assert -1e-12 <= gap < 2.0 * tolerance


def _stream(rows: slice = slice(None), size: int = 5) -> Iterator[tuple]:
    Y = observations(LIKELIHOODS["logit"][0]())[rows]
    yield from ((X[rows][i : i + size], Y[i : i + size]) for i in range(0, len(Y), size))


@pytest.mark.exhaustive
def test_every_kind_of_data_gives_the_same(tmp_path):
    model, (_, Y) = _model("logit")
    expected = copy.deepcopy(model)
    _sweep(expected, (X, Y), block=N)
    for name, array in (("X", X), ("Y", Y)):
        np.memmap(tmp_path / name, float, "w+", shape=array.shape)[:] = array
    sources = {
        "memmap": tuple(
            np.memmap(tmp_path / name, float, "r", shape=(N, array.shape[1]))
            for name, array in zip("XY", (X, Y))
        ),
        "dataset": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(N).batch(4),
        "function": _stream,
        "tensors": (tf.constant(X), tf.constant(Y)),
        "integers": (X, Y.astype(int)),
        "lists of rows": (X.tolist(), Y.tolist()),
    }
    for source, data in sources.items():
        twin = copy.deepcopy(model)
        assert _sweep(twin, data).reason == "converged", source
        _same_q(twin, expected, 1e-9)


class Spy:
    """An array that tells how many of its rows were asked for at once, and can do nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.most, self.reads = array, 0, 0
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.reads += 1
        self.most = max(self.most, len(self.array[rows]))
        return self.array[rows]


@pytest.mark.exhaustive
def test_one_block_is_in_memory_at_a_time():
    model, (_, Y) = _model("logit")
    spies = Spy(X), Spy(Y)
    _sweep(model, spies, block=2, passes=3)
    assert [spy.most for spy in spies] == [2, 2]
    assert [spy.reads for spy in spies] == [3 * 5, 3 * 5]


@pytest.mark.exhaustive
def test_compiled_and_eager_are_the_same_and_blocks_are_traced_twice_at_most(monkeypatch):
    model, data = _model("logit")
    twin, traces = copy.deepcopy(model), []
    features = type(model.basis).features

    def traced(*args):
        traces.extend(
            [] if tf.executing_eagerly() else [1]
        )  # the check of expectations at the end is eager
        return features(*args)

    monkeypatch.setattr(type(model.basis), "features", traced)
    _sweep(model, data, compile=True, passes=3)
    assert len(traces) <= 2
    _sweep(twin, data, passes=3)
    _same_q(model, twin)


@pytest.mark.exhaustive
def test_step_sizes_may_be_a_function():
    """Of the number of the step, 0 in the first pass."""
    model, data = _model("logit")
    result = _sweep(model, data, step_size=lambda step: 1.0 / (2.0 + step), passes=4)
    assert_allclose(result.history["step_size"], [1 / 2, 1 / 3, 1 / 4, 1 / 5])


@pytest.mark.exhaustive
def test_a_step_that_lowers_the_bound_is_halved():
    """Counts far above their rate: a full step overshoots."""
    model, data = _model("poisson", mean_function=None)
    Y = 30.0 + 50.0 * (X[:, :1] > 0)
    result = _sweep(model, (X, Y))
    assert result.reason == "converged" and result.shortened_steps > 0
    assert np.min(result.history["step_size"]) < 1.0 and result.history["step_size"][-1] == 1.0
    assert np.all(np.diff(result.history["elbo"]) > -1e-9)
    assert_allclose(result.elbo, model.elbo((X, Y)), rtol=1e-12)


def test_a_rejected_step_is_taken_back_when_passes_run_out():
    model, _ = _model("poisson", mean_function=None)
    before = values(model)
    result = _sweep(model, (X, 30.0 + 50.0 * (X[:, :1] > 0)), passes=2)
    assert result.steps == 0 and result.shortened_steps == 1 and result.reason == "passes done"
    assert not result.converged and np.isfinite(result.elbo)  # that of the start
    after = values(model)
    assert all(np.allclose(before[name], after[name]) for name in before)


@pytest.mark.exhaustive
def test_mean_points_stay_and_their_mean_counts():
    model, data = _model("logit", OrthogonalBasis(GAMMA, BETA, mean_subsample=2))
    model.basis.a_gamma.assign(np.random.default_rng(0).normal(size=(len(GAMMA), 1)))
    twin = copy.deepcopy(model)
    twin.num_data = N
    result = _sweep(model, data, tolerance=1e-14)
    step = NaturalGradient(0.9)
    for _ in range(25):
        step.minimize(twin, data)
    _same_q(model, twin, 1e-6)
    assert np.array_equal(model.basis.a_gamma, twin.basis.a_gamma)
    assert np.all(np.diff(result.history["elbo"]) > -1e-9)  # though the norm is sampled


@pytest.mark.exhaustive
def test_svgp_of_gpflow_is_swept_too():
    model, data = _model("logit")
    svgp = gpflow.models.SVGP(model.kernel, model.likelihood, BETA, mean_function=TREND)
    _sweep(svgp, data)
    _sweep(model, data)
    assert svgp.num_data == N
    assert_allclose(svgp.q_mu, model.basis.q_mu, rtol=1e-9)


def _outliers() -> tuple[SparseCVIGP, tuple]:
    """A Student-t likelihood whose outliers have negative precisions: a full step leaves the
    cone.
    """
    model, _ = _model("gaussian")
    Y = np.zeros((N, 1))
    Y[::2] = 4.0
    kernel, likelihood = matern(25.0, 3.0), gl.StudentT(scale=0.3, df=3.0)
    return SparseCVIGP(kernel, likelihood, BETA), (X, Y)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # likelihoods too narrow for their nodes
def test_negative_precisions_are_damped_clipped_or_refused():
    model, data = _outliers()
    model.basis.q_sqrt.assign(0.05 * np.eye(4)[None])
    damped, clipped, refused = (copy.deepcopy(model) for _ in range(3))
    result = _sweep(damped, data, passes=15)
    assert result.shortened_steps > 0 and result.clipped_sites == 0
    assert np.all(np.diff(result.history["elbo"][:-1]) > -1e-9) and np.isfinite(damped.elbo(data))
    result = _sweep(clipped, data, negative_precision="clip", passes=1)
    model.num_data = N
    report = NaturalGradient(1.0, negative_precision="clip").minimize(model, data)
    assert result.clipped_sites == report.clipped > 0
    _same_q(clipped, model)
    before = values(refused)
    with pytest.raises(
        NumericalError,
        match='not positive definite. Use a smaller step_size, negative_precision="clip"',
    ):
        _sweep(refused, data, negative_precision="raise")
    assert unchanged(before, refused)


@pytest.mark.exhaustive
def test_a_bound_that_is_infinite_from_the_start_is_refused():
    kernel = gpflow.kernels.Linear(np.ones(2)) + gpflow.kernels.Constant(1e6)
    model = SparseCVIGP(kernel, gl.Poisson(), Weights(3))
    before = values(model)
    with pytest.raises(NumericalError, match="The bound is not finite.*Poisson is -inf at row 0"):
        _sweep(model, _model("poisson")[1])
    assert unchanged(before, model)


def test_a_kernel_matrix_that_has_no_factor_is_named():
    kernel = LinearWeights(np.eye(2))
    model = SparseCVIGP(kernel, gl.Gaussian(), Weights(2))
    kernel.scale_tril.assign(np.zeros((2, 2)))
    with pytest.raises(
        NumericalError, match=r"K_beta \(2 x 2\) is not positive definite"
    ) as caught:
        _sweep(model, _model("gaussian")[1])
    assert caught.value.matrix == "K_beta"


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("error", [DataError, KeyboardInterrupt])
def test_what_ends_a_pass_leaves_the_last_q_whose_bound_is_known(error):
    model, (_, Y) = _model("poisson")
    twin, passes = copy.deepcopy(model), []

    def stream() -> Iterator[tuple]:
        passes.append(1)
        for start in (0, 5):
            if len(passes) == 3 and start == 5:
                if error is KeyboardInterrupt:
                    raise KeyboardInterrupt
                yield X[:4], np.full((4, 1), np.nan)
            yield X[start : start + 5], Y[start : start + 5]

    with pytest.raises(error):
        _sweep(model, stream)
    _sweep(twin, (X, Y), passes=1)  # the step whose bound the second pass told
    _same_q(model, twin)


LOGIT = (X, observations(LIKELIHOODS["logit"][0]()))
once = _stream()
BAD = {
    "Y rank 1": ((X, LOGIT[1][:, 0]), {}, r"Y has shape \(9,\); use Y\[:, None\]"),
    "rows differ": ((X[1:], LOGIT[1]), {}, "X has 8 rows and Y has 9"),
    "columns": ((X[:, :1], LOGIT[1]), {}, "X has 1 columns and the inducing points have 2"),
    "NaN in a later block": (
        (np.vstack([X[:-1], [[0.0, np.nan]]]), LOGIT[1]),
        {},
        r"X\[0, 1\] is nan",
    ),
    "counts": ((X, 2.0 + LOGIT[1]), {}, "0"),
    "empty": ((X[:0], LOGIT[1][:0]), {}, "The data have no rows"),
    "no pair": (X, {}, "data is a ndarray; pass"),
    "an iterator": (_stream(), {}, "data is a generator; pass .* or a function"),
    "an iterator in a function": (
        lambda: once,
        {},
        "The data have no rows: .*an iterator serves one pass only",
    ),
    "no end": (
        tf.data.Dataset.from_tensor_slices(LOGIT).batch(3).repeat(),
        {},
        r"The dataset has no end, .*: leave out repeat\(\)",
    ),
    "single rows": (tf.data.Dataset.from_tensor_slices(LOGIT), {}, r"X has shape \(2,\)"),
    "an empty batch": (lambda: iter([(X[:0], LOGIT[1][:0])]), {}, "X and Y have no rows"),
    "step size above 1": (
        LOGIT,
        {"step_size": 1.5},
        "step_size=1.5 at step 0 must be a number above 0 and at most 1",
    ),
    "step size 0": (LOGIT, {"step_size": 0.0}, "step_size=0.0 at step 0 must be a number above 0"),
    "tolerance": (LOGIT, {"tolerance": -1.0}, "tolerance=-1.0 must be a number above 0"),
    "passes": (LOGIT, {"passes": 0}, "passes=0 must be a whole number of at least 1"),
    "block": (LOGIT, {"block": 0}, "block=0 must be a whole number of at least 1"),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_nothing_changed(case):
    data, options, message = BAD[case]
    model, _ = _model("logit")
    before = values(model)
    with pytest.raises(DataError, match=message):
        _sweep(model, data, **options)
    if case != "an iterator in a function":  # which served a first pass, and so a step
        assert unchanged(before, model) and model.num_data is None


def test_rows_that_are_not_the_whole_set_are_refused():
    model, data = _model("logit", num_data=100)
    before = values(model)
    with pytest.raises(
        DataError, match="This pass had 9 rows and num_data is 100: .*set model.num_data = 9"
    ):
        _sweep(model, data)
    assert unchanged(before, model)
    sizes = iter([9, 7])
    model.num_data = None
    with pytest.raises(DataError, match="This pass had 7 rows and num_data is 9"):
        _sweep(model, lambda: _stream(slice(0, next(sizes))))


def test_models_without_tied_sites_are_refused():
    gpflow.config.set_default_jitter(JITTER)
    hybrid = BasisGP(matern(1.3, 0.8), gl.Gaussian(), HybridBasis(GAMMA, BETA))
    with pytest.raises(
        ModelError,
        match="sweep takes models with a CoupledBasis or an OrthogonalBasis, .*a HybridBasis",
    ):
        _sweep(hybrid, LOGIT)
    with pytest.raises(UnknownOptionError, match="negative_precision='mend'"):
        _sweep(_model("logit")[0], LOGIT, negative_precision="mend")


@pytest.mark.exhaustive
def test_progress_is_shown_when_asked(capfd):
    model, data = _model("logit")
    _sweep(model, data, progress=True)
    assert "ELBO" in capfd.readouterr().err
    _sweep(model, data)
    assert capfd.readouterr().err == ""
