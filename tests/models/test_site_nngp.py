"""Sites by neighbours: equal to the dense model with all rows, and every verb with a few."""

from __future__ import annotations

import copy
import functools
import inspect
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Likelihood, Poisson
from numpy.testing import assert_allclose
from scipy import stats

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.likelihoods import CategoricalLogit, RowLikelihood
from gpflow_decoupled.models import CVIGP, NNGP, MonteCarlo
from gpflow_decoupled.models.neighbours import GaussianNNGP, LabelNNGP, SiteNNGP
from gpflow_decoupled.optimizers import ConjugateComputation, NeighbourRounds, SiteSweeps
from tests.reference import neighbours as ref

RNG = np.random.default_rng(3)
N = 40
X = RNG.normal(size=(N, 2))
F = np.sin(2.0 * X[:, :1]) + X[:, 1:]
LABELS = (F + RNG.normal(size=F.shape) > 0.0).astype(float)
LIKELIHOODS = {
    "Bernoulli": (Bernoulli, LABELS),
    "Poisson": (Poisson, RNG.poisson(np.exp(F)).astype(float)),
    "CategoricalLogit": (lambda: CategoricalLogit(3), np.digitize(F, [-0.7, 0.7]).astype(float)),
}
XNEW = RNG.normal(size=(6, 2))


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance=1.4, lengthscales=[1.0, 1.5])


def model(likelihood: Likelihood | None = None, Y: np.ndarray = LABELS, m: int = 8) -> NNGP:
    likelihood = Bernoulli() if likelihood is None else likelihood
    return NNGP((X, Y), kernel(), likelihood, num_neighbours=m)


@functools.cache
def _solved() -> NNGP:
    one = model()
    SiteSweeps(one, batch_size=13, compile=False).run(5)
    return one


def solved() -> NNGP:
    """A model whose sites are near their optimum, which the test may change."""
    return copy.deepcopy(_solved())


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_with_all_rows_it_is_the_dense_model(name):
    make, Y = LIKELIHOODS[name]
    trend = gpflow.functions.Constant(np.full(1, 0.2))
    dense = CVIGP((X, Y), kernel(), make(), mean_function=trend)
    ConjugateComputation().run(dense)
    ours = SiteNNGP(
        (X, Y),
        kernel(),
        make(),
        num_neighbours=N - 1,
        prediction_neighbours=N,
        mean_function=trend,
    )
    report = SiteSweeps(ours, batch_size=13).run(60, tolerance=1e-8)
    assert report.converged
    # the jitter, 1e-6 of the prior variance, is noise here and not there
    assert_allclose(ours.maximum_log_likelihood_objective(), dense.elbo(), atol=1e-4)
    for of_ours, of_dense in zip(ours.predict_f(XNEW), dense.predict_f(XNEW)):
        assert_allclose(of_ours, of_dense, atol=1e-4)
    for of_ours, of_dense in zip(ours.moments()[:2], dense.moments()[:2]):
        assert_allclose(of_ours, of_dense, atol=1e-4)


def test_cavities_and_log_partition_are_those_of_the_reference():
    ours = solved()
    rows = np.arange(N)
    near, before = ours.neighbours_of(rows), ours.gaussian.neighbours_of(rows)
    K = ours.kernel(X).numpy() + 1e-10 * np.eye(N)
    sites = tuple(part.numpy()[:, 0] for part in ours.sites)
    cavity = ours.cavities(tf.constant(rows), near)
    for row in range(0, N, 7):
        expected = ref.cavity(K, sites, row, near[0, row].numpy())
        assert_allclose((cavity.mean[row, 0], cavity.variance[row, 0]), expected, rtol=1e-4)
    scores = ours.leave_one_out(rows, num_neighbours=8)
    for row in range(0, N, 7):
        mean, variance = ref.cavity(K, sites, row, near[0, row].numpy())
        # GPflow's link stays a thousandth away from 0 and 1
        probability = 0.998 * stats.norm.cdf(mean / np.sqrt(1.0 + variance)) + 0.001
        expected = np.log(probability if LABELS[row, 0] else 1.0 - probability)
        assert_allclose(scores.log_density[row], expected, rtol=1e-4)
    given = [[k for k in these if k >= 0] for these in before[0].numpy()]
    terms = ours.log_partition(tf.constant(rows), before)
    assert_allclose(terms, ref.log_partition(K, sites, given), rtol=1e-4, atol=1e-5)


def test_a_row_does_not_depend_on_the_others_of_a_call():
    ours = solved()
    mean, variance = ours.predict_y(XNEW)
    for k in range(len(XNEW)):
        alone = ours.predict_y(XNEW[k : k + 1])
        assert_allclose((alone[0][0], alone[1][0]), (mean[k], variance[k]), rtol=1e-12)


def test_arrays_on_disk_are_predicted_in_blocks(tmp_path: Path):
    ours = solved()
    stored = np.memmap(tmp_path / "X", float, "w+", shape=XNEW.shape)
    stored[:] = XNEW
    found = np.memmap(tmp_path / "Y", float, "w+", shape=(6, 1))
    for start in (0, 4):
        found[start : start + 4] = ours.predict_y(stored[start : start + 4])[0]
    assert_allclose(found, ours.predict_y(stored)[0], rtol=1e-12)


@pytest.mark.exhaustive
def test_verbs():
    ours = solved()
    probability, _ = ours.predict_y(XNEW)
    assert_allclose(
        ours.predict_log_density((XNEW, np.ones((6, 1)))), np.log(probability[:, 0]), rtol=1e-9
    )
    assert ours.predict_f(XNEW, full_cov=True)[1].shape == (1, 6, 6)
    assert ours.predict_f_samples(XNEW, 3).shape == (3, 6, 1)
    assert_allclose(ours.posterior().predict_f(XNEW)[0], ours.predict_f(XNEW)[0], rtol=1e-10)
    assert_allclose(tf.function(ours.predict_y, autograph=False)(XNEW)[0], probability, rtol=1e-10)
    scores = ours.leave_one_out([0, 5, 7])
    assert scores.log_density.shape == (3,) and np.all(scores.log_density < 0.0)
    assert repr(ours).startswith("SiteNNGP(Matern52, Bernoulli, N=40, num_neighbours=8")


def test_update_finds_the_sites_of_new_rows():
    ours = solved()
    old, before = ours.sites, ours.predict_f(XNEW)[0].numpy()
    later = copy.deepcopy(ours)
    ours.update((XNEW, np.ones((6, 1))))
    assert ours.data[0].shape == (N + 6, 2)
    for kept, was in zip(ours.sites, old):
        assert_allclose(kept[:N], was, rtol=1e-12)
    assert np.all(ours.predict_f(XNEW)[0] > before)
    later.update((XNEW, np.ones((6, 1))), passes=0)
    assert np.all(later.sites[0][N:] == 0.0)
    for one in (ours, later):
        SiteSweeps(one, compile=False).run(20, rows=np.arange(N, N + 6), tolerance=1e-7)
    assert_allclose(ours.sites[0], later.sites[0], rtol=1e-5)


@pytest.mark.exhaustive
def test_update_counts_clipped_sites():
    likelihood = gpflow.likelihoods.StudentT(0.1)
    ours = NNGP((X, F), kernel(), likelihood, num_neighbours=8)
    SiteSweeps(ours, compile=False).run(3)
    # two equal inputs, and an observation that contradicts the other
    new = np.repeat(XNEW[:1], 4, axis=0), np.array([[0.0], [0.1], [0.0], [9.0]])
    later = copy.deepcopy(ours)
    report = ours.update(new)
    assert report.clipped_sites > 0 and 0.0 < report.change
    assert later.update(new, passes=0) == (0, 0.0)
    log_concave = solved().update((XNEW, np.ones((6, 1))))
    assert log_concave.clipped_sites == 0 and 0.0 < log_concave.change < 0.1


def test_new_sites_say_nothing_where_all_rows_are_neighbours():
    ours = NNGP((X, LABELS), kernel(), Bernoulli(), num_neighbours=8, prediction_neighbours=100)
    SiteSweeps(ours, compile=False).run(3)
    before = ours.predict_f(XNEW)
    ours.update((XNEW, np.ones((6, 1))), passes=0)
    for now, was in zip(ours.predict_f(XNEW), before):
        assert_allclose(now, was, rtol=1e-5, atol=1e-6)
    nothing = tf.zeros([N + 6, 1], tf.float64)
    ours.assign_sites(tf.range(N + 6), nothing, nothing)
    assert_allclose(ours.predict_f(XNEW)[1], np.full((6, 1), 1.4), rtol=1e-5)


@pytest.mark.exhaustive
def test_single_precision():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        data = X.astype(np.float32), LABELS.astype(np.float32)
        ours = NNGP(data, kernel(), Bernoulli(), num_neighbours=8)
        SiteSweeps(ours, compile=False).run(5)
        probability, _ = ours.predict_y(XNEW.astype(np.float32))
    assert_allclose(probability, solved().predict_y(XNEW)[0], atol=2e-3)


def test_bad_input():
    with pytest.raises(DataError, match=r"Y\[2\] is NaN"):
        model(Y=np.where(np.arange(N)[:, None] == 2, np.nan, LABELS))
    with pytest.raises(DataError, match="num_neighbours"):
        model(m=0)
    with pytest.raises(DataError, match="mixes latent functions"):
        mixed = gpflow.kernels.LinearCoregionalization([kernel()], W=np.ones((1, 1)))
        NNGP((X, LABELS), mixed, Bernoulli(), num_neighbours=3)
    ours = solved()
    with pytest.raises(DataError):
        ours.update((XNEW, np.full((6, 1), 2.0)))
    assert ours.data[0].shape == (N, 2)
    for options in ({"step_size": 0.0}, {"step_size": 1.5}, {"batch_size": 0}, {"seed": -1}):
        with pytest.raises(DataError):
            SiteSweeps(ours, **options)


@pytest.mark.exhaustive
def test_a_pass_that_fails_is_undone():
    ours = solved()
    before = [part.numpy() for part in ours.sites]
    ours.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(NumericalError, match="undone"):
        SiteSweeps(ours, compile=False).run(1)
    for part, was in zip(ours.sites, before):
        assert_allclose(part, was)


@pytest.mark.exhaustive
def test_a_step_size_that_was_halved_grows_again():
    """Likelihoods that are not log-concave converge too."""
    likelihood = gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT(0.1)]
    )
    X = np.random.default_rng(0).normal(size=(60, 2))
    Y = np.hstack([np.sin(2.0 * X[:, :1]) + X[:, 1:], (np.arange(60) % 2)[:, None].astype(float)])
    one = NNGP((X, Y), gpflow.kernels.Matern52(), likelihood, num_neighbours=10)
    assert one.num_latent_gps == 1
    assert SiteSweeps(one).run(29).converged


@pytest.mark.exhaustive
def test_a_short_step_is_not_called_converged():
    assert not SiteSweeps(model(), step_size=1e-5, compile=False).run(2).converged


def test_the_likelihood_chooses_the_class():
    data, options = (X, LABELS), {"num_neighbours": 3}
    for likelihood, kind in (
        ((), GaussianNNGP),
        ((gpflow.likelihoods.Gaussian(0.1),), GaussianNNGP),
        ((Bernoulli(),), SiteNNGP),
        ((CategoricalLogit(2),), LabelNNGP),
    ):
        ours = NNGP(data, kernel(), *likelihood, **options)
        assert type(ours) is kind and isinstance(ours, NNGP)
        assert type(copy.deepcopy(ours)) is kind
    assert type(NNGP(data, kernel(), likelihood=Bernoulli(), **options)) is SiteNNGP
    assert type(SiteNNGP(data, kernel(), gpflow.likelihoods.Gaussian(), **options)) is SiteNNGP
    assert "num_neighbours" in inspect.signature(NNGP).parameters
    with pytest.raises(DataError, match="num_latent_gps"):
        NNGP(data, kernel(), num_latent_gps=2, **options)


def test_sites_and_rounds_refuse_the_other_class():
    with pytest.raises(ModelError, match=r"SiteSweeps takes .* SiteNNGP, and got GaussianNNGP"):
        SiteSweeps(NNGP((X, LABELS), kernel(), num_neighbours=3))
    with pytest.raises(ModelError, match=r"NeighbourRounds takes .* GaussianNNGP"):
        NeighbourRounds(model())


def test_classes_share_neighbours():
    Y = LIKELIHOODS["CategoricalLogit"][1]
    ours = SiteNNGP((X, Y), kernel(), CategoricalLogit(18), num_neighbours=8)
    assert ours.neighbours_of(np.arange(N)).shape == (1, N, 8)


@functools.cache
def _of_all_rows() -> SiteNNGP:
    """Three classes, a mean of all rows and the variances of a few neighbours."""
    trend = gpflow.functions.Constant(np.full(1, 0.2))
    one = SiteNNGP(
        (X, LIKELIHOODS["CategoricalLogit"][1]),
        kernel(),
        CategoricalLogit(3),
        num_neighbours=8,
        mean="data",
        mean_function=trend,
    )
    SiteSweeps(one, batch_size=13, compile=False).run(4)
    one.solve_mean(tolerance=1e-10)
    return one


@pytest.mark.exhaustive
def test_the_mean_of_all_rows_is_the_dense_one_at_the_same_sites():
    ours = _of_all_rows()
    dense = CVIGP(
        ours.data, kernel(), CategoricalLogit(3), mean_function=gpflow.functions.Constant([0.2])
    )
    nu, precision = ours.sites
    # a CVIGP has sites of f less the mean function
    dense.basis.nu.assign(nu - 0.2 * precision)
    dense.basis.tau.assign(precision)
    mean, variance = ours.predict_f(XNEW)
    assert_allclose(mean, dense.predict_f(XNEW)[0], atol=2e-5)
    near = copy.deepcopy(ours)
    near.mean = "neighbours"
    assert_allclose(variance, near.predict_f(XNEW)[1], rtol=1e-12)
    assert np.abs(mean - near.predict_f(XNEW)[0]).max() > 1e-3
    rows = np.arange(0, N, 9)
    wide = copy.deepcopy(ours)
    exact = wide.leave_one_out(rows, num_neighbours=N - 1)
    found = wide.leave_one_out(rows, num_neighbours=N - 1, mean="data")
    assert_allclose(found.log_density, exact.log_density, atol=1e-4)


@pytest.mark.exhaustive
def test_the_mean_of_all_rows_follows_sites_parameters_and_rows():
    ours = copy.deepcopy(_of_all_rows())
    assert ours.mean_is_solved
    before = ours.predict_f(XNEW)[0]
    for change in (
        lambda: ours.assign_sites(tf.range(N), 0.5 * ours.sites[0], ours.sites[1]),
        lambda: ours.kernel.variance.assign(2.0),
        lambda: ours.update((XNEW, np.zeros((6, 1)))),
    ):
        change()
        assert not ours.mean_is_solved
        now = ours.predict_f(XNEW)[0]
        assert ours.mean_is_solved and np.abs(now - before).max() > 1e-6
        before = now


@pytest.mark.exhaustive
def test_joint_predictions_of_classes_have_their_own_covariances():
    Y = LIKELIHOODS["CategoricalLogit"][1]
    ours = SiteNNGP(
        (X, Y), kernel(), CategoricalLogit(3), num_neighbours=8, prediction_neighbours=N
    )
    SiteSweeps(ours, batch_size=13, compile=False).run(1)
    mean, cov = ours.predict_f(XNEW, full_cov=True)
    assert cov.shape == (3, 6, 6)
    for of_joint, of_each in zip((mean, tf.linalg.diag_part(cov)), ours.predict_f(XNEW)):
        expected = of_each if of_joint is mean else tf.transpose(of_each)
        assert_allclose(of_joint, expected, rtol=1e-6, atol=1e-6)


GAPS = RNG.random((N, 2)) < 0.3
GAPS[GAPS.all(axis=1)] = False
COUNTS = np.where(GAPS, np.nan, RNG.poisson(np.exp(np.hstack([F, -F]))))


def _with_gaps(m: int, passes: int) -> SiteNNGP:
    one = NNGP((X, COUNTS), kernel(), Poisson(), num_neighbours=m, prediction_neighbours=m + 1)
    SiteSweeps(one, batch_size=13, compile=passes > 5).run(passes, tolerance=1e-8)
    return one


@pytest.mark.exhaustive
def test_missing_outputs_are_those_of_the_dense_model(tmp_path: Path):
    ours = _with_gaps(N - 1, 29)
    dense = CVIGP((X, COUNTS), kernel(), RowLikelihood(Poisson()))
    ConjugateComputation().run(dense)
    assert_allclose(ours.maximum_log_likelihood_objective(), dense.elbo(), atol=1e-4)
    for of_ours, of_dense in zip(ours.predict_f(XNEW), dense.predict_f(XNEW)):
        assert_allclose(of_ours, of_dense, atol=1e-4)
    for part in ours.sites:
        assert np.all(part.numpy()[GAPS] == 0.0) and np.all(part.numpy()[~GAPS] != 0.0)
    gd.save(ours, tmp_path / "model")
    assert_allclose(gd.load(tmp_path / "model").predict_y(X)[0], ours.predict_y(X)[0], rtol=1e-12)


@pytest.mark.exhaustive
def test_each_output_is_a_model_of_its_observed_rows():
    """Missing entries are no neighbours, and count in no score."""
    ours, rows = _with_gaps(8, 2), np.arange(N)
    one, scores = gd.fit(ours, steps=1, progress=False, compile=False), ours.leave_one_out()
    expected = np.zeros(N)
    for p in range(2):
        seen = ~GAPS[:, p]
        alone = NNGP(
            (X[seen], COUNTS[seen, p : p + 1]),
            kernel(),
            Poisson(),
            num_neighbours=8,
            prediction_neighbours=9,
        )
        alone.assign_sites(tf.range(seen.sum()), *(part[seen][:, p : p + 1] for part in ours.sites))
        assert_allclose(ours.predict_y(XNEW)[0][:, p], alone.predict_y(XNEW)[0][:, 0], rtol=1e-9)
        left = alone.leave_one_out()
        expected[seen] += left.log_density
        assert_allclose(scores.mean[seen, p], left.mean[:, 0], rtol=1e-9)
        gap = rows[GAPS[:, p]]
        assert_allclose(scores.mean[gap, p], ours.predict_y(X[gap])[0][:, p], rtol=1e-9)
    assert_allclose(scores.log_density, expected, rtol=1e-9)
    assert np.isfinite(one.elbo)
    some = np.where(XNEW[:, :1] > 0.0, [[1.0, np.nan]], [[np.nan, 2.0]])
    whole = [ours.predict_log_density((XNEW, np.full((6, 2), c))) for c in (1.0, 2.0)]
    assert np.all(ours.predict_log_density((XNEW, some)) > np.minimum(*whole))


@pytest.mark.exhaustive
def test_the_mean_of_all_rows_leaves_out_missing_outputs():
    ours, wide = _with_gaps(8, 1), _with_gaps(N - 1, 1)
    near = ours.predict_f(XNEW)[0]
    ours.mean = "data"
    ours.solve_mean(tolerance=1e-10)
    wide.assign_sites(tf.range(N), *ours.sites)
    assert_allclose(ours.predict_f(XNEW)[0], wide.predict_f(XNEW)[0], atol=1e-4)
    assert ours.mean_is_solved and np.abs(ours.predict_f(XNEW)[0] - near).max() > 1e-3
    ours.update((XNEW, np.array([[1.0, np.nan]] * 6)))
    assert not ours.mean_is_solved and np.all(np.isfinite(ours.predict_f(XNEW)[0]))


def test_gaps_that_cannot_be_left_out_are_refused():
    with pytest.raises(DataError, match=r"Y\[:, 1\] is NaN in all rows"):
        NNGP((X, COUNTS * [1.0, np.nan]), kernel(), Poisson(), num_neighbours=3)
    with pytest.raises(DataError, match=r"Y\[4\] is NaN in all columns"):
        empty = np.where(np.arange(N)[:, None] == 4, np.nan, COUNTS)
        NNGP((X, empty), kernel(), Poisson(), num_neighbours=3)
    with pytest.raises(DataError, match=r"outside the support of Poisson"):
        NNGP((X, COUNTS - 1.0), kernel(), Poisson(), num_neighbours=3)
    with pytest.raises(DataError, match=r"pass likelihoods.RowLikelihood\(Poisson\(...\)\)"):
        NNGP((X, np.nan_to_num(COUNTS)), kernel(), Poisson(), num_neighbours=3).update((X, COUNTS))


@pytest.mark.exhaustive
def test_clipped_precisions_are_counted():
    """A site is negative where the mean curvature of a Student-t's log density under q is."""
    Y = F + 0.1 * np.random.default_rng(8).standard_t(2.0, F.shape)
    Y[:5] += 4.0
    scale, df, z = 0.1, 3.0, np.linspace(-9.0, 9.0, 20_001)

    def made() -> NNGP:
        likelihood = gpflow.likelihoods.StudentT(scale, df)
        return NNGP((X, Y), kernel(), likelihood, num_neighbours=8)

    ours = made()
    near, counts = ours.neighbours_of(np.arange(N)), []
    for _ in range(3):
        q = ours.moments()
        square = np.square(Y - q.mean - np.sqrt(q.variance) * z)  # [N, z]
        curvature = (df + 1.0) * (square - df * scale**2) / np.square(square + df * scale**2)
        mean_curvature = np.sum(curvature * stats.norm.pdf(z), axis=1)
        negative = mean_curvature > 0.0
        nu, precision, _, clipped = ours.moved_sites(tf.range(N), near, tf.ones([], tf.float64))
        np.testing.assert_array_equal(clipped, negative)
        assert np.all(precision.numpy()[negative] < 1e-6)
        ours.assign_sites(tf.range(N), nu, precision)
        counts.append(np.sum(negative))
    assert min(counts) > 0
    assert SiteSweeps(made(), batch_size=N, compile=False).run(1).clipped == counts[0]
    assert SiteSweeps(model(), compile=False).run(2).clipped == 0


class _Shifted(Likelihood):
    """Normal noise by its log density alone: expectations have no closed form and no nodes."""

    def __init__(self):
        super().__init__(input_dim=None, latent_dim=1, observation_dim=1)

    def _log_prob(self, X, F, Y):
        return gpflow.logdensities.gaussian(Y, F, tf.constant(0.5, F.dtype))[..., 0]

    def _conditional_mean(self, X, F):
        return F

    _conditional_variance = _conditional_mean
    _predict_mean_and_var = _predict_log_density = _variational_expectations = None


@pytest.mark.exhaustive
def test_draws_find_the_sites_of_a_log_density():
    draws = MonteCarlo(50, seed=3)
    ours = NNGP((X, F), kernel(), _Shifted(), num_neighbours=8, expectations=draws)
    report = SiteSweeps(ours, batch_size=13, compile=False).run(30)
    assert len(report.changes) == 30 and not report.converged and ours.resolution is None
    nu, precision = ours.sites
    assert_allclose(precision, np.full((N, 1), 2.0), rtol=0.2)
    assert_allclose(nu / precision, F, atol=0.2)


def test_draws_are_for_sites():
    for likelihood in (gpflow.likelihoods.Gaussian(), CategoricalLogit(2)):
        with pytest.raises(DataError, match=r"expectations=MonteCarlo\(...\) is for sites"):
            NNGP((X, LABELS), kernel(), likelihood, num_neighbours=3, expectations=MonteCarlo())
    with pytest.raises(DataError, match="made of steps"):
        steps = gpflow.likelihoods.MultiClass(2)
        NNGP((X, LABELS), kernel(), steps, num_neighbours=3, expectations=MonteCarlo())


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1e4, 1e6])
def test_sites_of_large_counts_converge_from_nothing(size: float):
    """One step from f = 0 towards a count of 10,000 ends at f = 110, and thirty more nearby."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 3.0, (30, 1)), axis=0)
    f = np.log(size) + np.sin(2.0 * X)
    data = X, rng.poisson(np.exp(f)).astype(float)
    kernel, new = gpflow.kernels.Matern52(9.0), np.arange(30) % 3 > 0

    def model(rows: np.ndarray) -> NNGP:
        some = tuple(part[rows] for part in data)
        return NNGP(some, kernel, gpflow.likelihoods.Poisson(), num_neighbours=29)

    whole, streamed = model(np.arange(30)), model(~new)
    assert SiteSweeps(whole).run().converged
    SiteSweeps(streamed).run()
    record = streamed.update(tuple(part[new] for part in data))
    assert record.change < 0.01
    for one in (whole, streamed):
        np.testing.assert_allclose(one.predict_f(X)[0], f, atol=5.0 / np.sqrt(size))
