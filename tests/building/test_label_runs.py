"""The choice of a kernel for labels and counts, by least squares and the likelihood."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy.special import expit, gammaln

import gpflow_decoupled as gd
from gpflow_decoupled.building import choice, kernels, label_runs
from gpflow_decoupled.building.kernels import CANDIDATES, KernelChoice, choose_label_kernel
from gpflow_decoupled.building.label_runs import LabelRuns
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from gpflow_decoupled.models import LeaveOneOut
from gpflow_decoupled.models.neighbours import GaussianNNGP

RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(-2.0, 2.0, (400, 1)), axis=0)
WALK = np.cumsum(RNG.standard_normal(X.shape), axis=0)
WALK -= WALK.mean()
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


@pytest.fixture
def short(monkeypatch):
    """The shortest of runs, of two kernels."""
    for name, value in {"_ROWS": 100, "_EVALUATIONS": 3, "_JUDGING_NEIGHBOURS": 10}.items():
        monkeypatch.setattr(label_runs, name, value)
    two = {name: CANDIDATES[name] for name in ("Matern 1/2", "squared exponential")}
    monkeypatch.setattr(kernels, "CANDIDATES", two)


def labels() -> np.ndarray:
    return (RNG.uniform(size=X.shape) < expit(3.0 * WALK)).astype(float)


@pytest.mark.exhaustive
def test_the_scores_are_log_densities_of_labels_left_out(short):
    """a, b and c are not worse than a grid's, with the integrals of a rule that is written out."""
    Y = labels()
    run = LabelRuns(Y, BernoulliLogit()).run(gpflow.kernels.Matern12, X)
    rows = np.sort(np.random.default_rng([0, 0]).permutation(len(X))[:80])  # the judging rows
    found = run.model.leave_one_out(rows)
    variance = found.variance - run.model.likelihood.variance.numpy()

    def mean_density(a: float, b: float, c: float) -> float:
        f = c + a * found.mean + np.sqrt(b * variance) * NODES
        chances = expit(np.where(Y[rows] > 0.5, f, -f)) @ (WEIGHTS / np.sum(WEIGHTS))
        return float(np.mean(np.log(chances)))

    grid = np.array(
        np.meshgrid(np.geomspace(0.3, 20.0, 15), np.geomspace(0.01, 99.0, 9), [-0.3, 0.0, 0.3])
    )
    best = max(mean_density(*point) for point in grid.reshape(3, -1).T)
    assert best - 0.003 < run.best < best + 0.02
    assert run.best > np.mean(np.log(0.5)) + 0.1


@pytest.mark.exhaustive
def test_a_wrong_scale_of_the_variances_is_found(short, monkeypatch):
    counts = RNG.poisson(np.exp(1.0 + np.sin(2.0 * X))).astype(float)
    runs, exact = LabelRuns(counts, gpflow.likelihoods.Poisson()), GaussianNNGP.leave_one_out
    plain = runs.run(gpflow.kernels.Matern12, X).best

    def wide(self: GaussianNNGP, rows: np.ndarray, **of_rounds: object) -> LeaveOneOut:
        found, noise = exact(self, rows, **of_rounds), self.likelihood.variance.numpy()
        if of_rounds:
            return found
        return found._replace(variance=noise + 100.0 * (found.variance - noise))

    monkeypatch.setattr(GaussianNNGP, "leave_one_out", wide)
    assert runs.run(gpflow.kernels.Matern12, X).best == pytest.approx(plain, abs=0.01)


def test_targets_are_of_mean_zero_and_variance_one():
    Y, likelihood = RNG.integers(0, 3, X.shape).astype(float), gpflow.likelihoods.Poisson()
    targets = LabelRuns(Y, likelihood).targets
    assert targets.shape == (400, 1)
    np.testing.assert_allclose(targets.mean(axis=0), 0.0, atol=1e-12)
    assert np.mean(targets**2) == pytest.approx(1.0)
    few = LabelRuns(np.zeros_like(Y), likelihood).targets  # one value alone
    assert np.isfinite(few).all()


@pytest.mark.exhaustive
def test_a_rough_kernel_is_chosen_for_classes_of_a_walk(short):
    Y = np.digitize(WALK, np.quantile(WALK, [0.33, 0.67])).astype(float)
    found = choose_label_kernel(X, Y, CategoricalLogit(3), fixed=True)
    assert found.name == "Matern 1/2" and type(found.kernel) is gpflow.kernels.Matern12
    shares = np.bincount(Y[:, 0].astype(int)) / len(Y)
    assert found.scores["Matern 1/2"] > np.sum(shares * np.log(shares)) + 0.3
    np.testing.assert_array_equal(found.kernel.lengthscales, [1.0])


@pytest.mark.exhaustive
def test_counts_are_judged_by_their_likelihood(short):
    rate = np.exp(1.0 + np.sin(2.0 * X))
    Y = RNG.poisson(rate).astype(float)
    found = choose_label_kernel(X, Y, gpflow.likelihoods.Poisson(), fixed=True, seconds=1e-3)
    assert list(found.scores) == ["Matern 1/2"]  # the limit ends the comparison
    truth = np.mean(Y * np.log(rate) - rate - gammaln(Y + 1.0))
    assert truth - 0.3 < found.scores["Matern 1/2"] < truth + 0.15


def test_build_says_what_it_chose_for_labels(monkeypatch, capsys):
    kernel = gpflow.kernels.Matern12(lengthscales=[0.3])
    fixed = KernelChoice("Matern 1/2", kernel, 0.0, {"Matern 1/2": -0.4, "Matern 3/2": -0.5})
    asked = []
    monkeypatch.setattr(
        choice, "choose_label_kernel", lambda *given, **options: asked.append(given) or fixed
    )
    model = gd.build(X, labels(), "bernoulli", kernel="auto", num_neighbours=20)
    said = capsys.readouterr().out
    assert "kernel Matern 1/2, the roughest of those that score alike" in said
    assert len(asked) == 1 and isinstance(asked[0][2], BernoulliLogit)
    assert isinstance(model.model.kernel, gpflow.kernels.Matern12)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"likelihood": "heteroskedastic"}, "HeteroskedasticTFPConditional has several latent"),
        ({"likelihood": "poisson", "exposure": np.ones(400)}, "rows have weights, offsets"),
    ],
)
def test_what_least_squares_does_not_know_is_refused(options, message):
    with pytest.raises(DataError, match=message):
        gd.build(X, labels(), kernel="auto", verbose=False, **options)
