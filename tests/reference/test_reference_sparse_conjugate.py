"""Tied sites in the reference, against natural gradients, an optimizer and the full GP;
hyperparameters, orderings.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose
from scipy.special import log_expit, logsumexp

from . import collapsed as col
from . import conjugate as cvi
from . import decoupled as ref
from . import grams as gr
from . import natural_gradient as ng
from . import sparse_conjugate as sp
from .cases import LIKELIHOODS, NOISE, gradient, labels, make_grams, same, spd

MEAN = np.linspace(-0.5, 0.8, 8)  # the mean function at the data


def setting(name="bernoulli", M=4, N=8):
    """Grams, (Kuu, Kuf, kdiag) and the expectations of one likelihood."""
    k = make_grams(N=N, M_b=M, jitter=0.1)
    return k, matrices(k), cvi.quadrature(LIKELIHOODS[name], labels(name, N))


def matrices(k):
    return k.K_b, k.K_xb.T, np.diag(k.K_x)


def random_sites(M=4, seed=3):
    """Sites whose precision has a negative eigenvalue, small enough for every storage."""
    rng = np.random.default_rng(seed)
    second = spd(rng, M)
    values, vectors = np.linalg.eigh(second)
    return sp.TiedSites(
        rng.normal(size=M), second - (values[0] + 0.05) * np.outer(vectors[:, 0], vectors[:, 0])
    )


@pytest.mark.parametrize("source", sp.STORAGES)
@pytest.mark.parametrize("target", sp.STORAGES)
def test_storages_hold_the_same_sites(source, target):
    _, (Kuu, Kuf, _), _ = setting()
    rng = np.random.default_rng(0)
    nu, tau = rng.normal(size=8), rng.uniform(-0.1, 2.0, size=8)
    sites, converted = (
        sp.tie(sp.columns(Kuu, Kuf, storage), nu, tau) for storage in (source, target)
    )
    same(sp.convert(Kuu, sites, source, target), converted, 1e-11)
    P = np.linalg.inv(Kuu) @ Kuf
    S = np.linalg.inv(
        np.linalg.inv(Kuu) + sum(t * np.outer(p, p) for t, p in zip(tau, P.T, strict=True))
    )
    same(sp.moments(Kuu, converted, target), (S @ P @ nu, S), 1e-11)


def test_predictions_and_divergence_from_each_storage():
    k, (Kuu, Kuf, kdiag), _ = setting()
    whitened, unprojected = (
        sp.convert(Kuu, random_sites(), "projected", to) for to in ("whitened", "unprojected")
    )
    m, S = sp.moments(Kuu, random_sites(), "projected")
    mean, cov, kl = ref.coupled(k, m, S)
    same(sp.predict(Kuu, Kuf, k.K_x, m, S), (mean, cov), 1e-11)
    same(sp.predict_unprojected(Kuu, Kuf, k.K_x, unprojected), (mean, cov), 1e-11)
    same(sp.marginals(Kuu, Kuf, kdiag, m, S), (mean, np.diag(cov)), 1e-11)
    divergences = [
        sp.kl_textbook(Kuu, m, S),
        sp.kl_unprojected(Kuu, unprojected),
        sp.kl_whitened(whitened),
    ]
    assert_allclose(divergences, kl, rtol=1e-11)
    none = sp.no_sites(4)
    same([sp.kl_unprojected(Kuu, none), sp.kl_whitened(none)], [0.0, 0.0])
    for storage in sp.STORAGES:
        same(sp.moments(Kuu, none, storage), (np.zeros(4), Kuu))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("storage", sp.STORAGES)
def test_step_in_any_storage_is_a_natural_gradient_step(name, storage):
    k, (Kuu, Kuf, kdiag), expect = setting(name)
    sites = sp.convert(Kuu, random_sites(), "projected", storage)
    m, S = sp.moments(Kuu, sites, storage)
    for _ in range(3):
        q = ref.coupled(k, m, S)
        _, g, h = expect(q.mean + MEAN, np.diag(q.cov))
        m, S = ng.natural_gradient_step(k, m, S, g, h, 0.3, 2.5)
        sites = sp.step(Kuu, Kuf, kdiag, sites, storage, expect, 0.3, MEAN, 2.5)
        same(sp.moments(Kuu, sites, storage), (m, S), 1e-10)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_steps_average_over_all_batches_to_the_full_step(size):
    _, (Kuu, Kuf, kdiag), _ = setting()
    y, sites, steps = labels("bernoulli", 8), random_sites(), []
    for batch in map(list, combinations(range(8), size)):
        expect = cvi.quadrature(LIKELIHOODS["bernoulli"], y[batch])
        data = Kuu, Kuf[:, batch], kdiag[batch]
        steps.append(sp.step(*data, sites, "projected", expect, 0.3, MEAN[batch], 8 / size))
    full = sp.step(Kuu, Kuf, kdiag, sites, "projected", setting()[2], 0.3, MEAN)
    same((np.mean(parts, axis=0) for parts in zip(*steps, strict=True)), full)


def test_copies_of_one_datum_stand_for_each_other():
    _, (Kuu, Kuf, kdiag), _ = setting()

    def step(copies, scale):
        data = Kuu, np.repeat(Kuf[:, :1], copies, 1), np.repeat(kdiag[:1], copies)
        expect = cvi.quadrature(LIKELIHOODS["poisson"], np.full(copies, 3.0))
        return sp.step(*data, random_sites(), "whitened", expect, 0.3, MEAN[0], scale)

    same(step(2, 3.0), step(6, 1.0))


def test_inducing_points_at_the_data_have_the_sites_of_the_full_gp_less_the_prior_mean():
    k, _, expect = setting("poisson")
    K, kdiag = k.K_x, np.diag(k.K_x)
    tied, sites = sp.no_sites(8), cvi.no_sites(8)
    for _ in range(6):
        tied = sp.step(K, K, kdiag, tied, "projected", expect, 0.4, MEAN)
        mean, var = cvi.marginals(K, MEAN, sites)
        sites = cvi.site_step(sites, cvi.site_target(mean, *expect(mean, var)[1:]), 0.4)
        same(tied, (sites.nu - sites.tau * MEAN, np.diag(sites.tau)), 1e-9)
    bound = cvi.site_bound(K, MEAN, sites, expect)
    assert_allclose(sp.projected_bound(K, K, kdiag, tied, expect, MEAN), bound, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fixed_point_is_the_best_gaussian(name):
    _, (Kuu, Kuf, kdiag), expect = setting(name, M=3)

    def value(m, S):
        mean, var = sp.marginals(Kuu, Kuf, kdiag, m, S)
        return float(np.sum(expect(mean + MEAN, var).value)) - sp.kl_textbook(Kuu, m, S)

    sites = sp.run(Kuu, Kuf, kdiag, expect, MEAN)
    m, S, best = cvi.best_gaussian(value, 3)
    assert_allclose(sp.projected_bound(Kuu, Kuf, kdiag, sites, expect, MEAN), best, rtol=1e-9)
    same(sp.moments(Kuu, sites, "projected"), (m, S), 1e-4)
    doubled = sp.projected_bound(Kuu, Kuf, kdiag, sites, expect, MEAN, 2.0)
    assert_allclose(doubled, 2.0 * best + sp.kl_textbook(Kuu, m, S), rtol=1e-5)


def test_updates_that_do_not_settle_are_refused():
    with pytest.raises(ValueError, match="no fixed point"):
        sp.fixed_point(lambda sites: sp.TiedSites(sites.lambda1 + 1.0, sites.Lambda2), 1)


def test_gaussian_step_of_size_one_is_sgpr_and_its_data_sites_stay_so_when_the_kernel_moves():
    k, (Kuu, Kuf, kdiag), expect = setting("gaussian")
    y = labels("gaussian", 8)
    whitened = sp.convert(Kuu, random_sites(), "projected", "whitened")
    sites = sp.step(Kuu, Kuf, kdiag, whitened, "whitened", expect, 1.0, MEAN)
    sites = sp.convert(Kuu, sites, "whitened", "projected")
    evidence = col.sgpr_bound(k, y - MEAN, NOISE)
    assert_allclose(sp.projected_bound(Kuu, Kuf, kdiag, sites, expect, MEAN), evidence, rtol=1e-11)
    assert evidence < cvi.log_evidence(k.K_x, MEAN, y, NOISE)
    k, nu, tau = make_grams(5, N=8, M_b=4), (y - MEAN) / NOISE, np.full(8, 1 / NOISE)
    per_datum = sp.per_datum_bound(*matrices(k), nu, tau, expect, MEAN)
    assert_allclose(per_datum, col.sgpr_bound(k, y - MEAN, NOISE), rtol=1e-11)
    assert sp.projected_bound(*matrices(k), sites, expect, MEAN) < per_datum
    # Centred sites must follow a mean function that moves.
    followed = sp.per_datum_bound(*matrices(k), nu - tau * 0.5, tau, expect, MEAN + 0.5)
    assert_allclose(followed, col.sgpr_bound(k, y - MEAN - 0.5, NOISE), rtol=1e-11)
    assert sp.per_datum_bound(*matrices(k), nu, tau, expect, MEAN + 0.5) < followed - 1e-2


def _moving(theta, seed=0):
    """(Kuu, Kuf, kdiag) at kernel parameters theta[:2] and inducing points moved by theta[2:]."""
    rng = np.random.default_rng(seed)
    X, Z = 2.0 * rng.normal(size=(8, 2)), 2.0 * rng.normal(size=(4, 2))
    Z[0] += theta[2:]
    return matrices(
        gr.build_grams(lambda A, B: gr.matern32(A, B, *np.exp(theta[:2])), X, Z, Z[:0], 1e-3)
    )


def _held_fixed(sites, old, expect):
    """Bounds as functions of theta with q(u) represented in several ways, from projected sites at
    `old`.
    """
    Kuu = _moving(old)[0]
    whitened, unprojected = (
        sp.convert(Kuu, sites, "projected", to) for to in ("whitened", "unprojected")
    )
    moments = sp.moments(Kuu, sites, "projected")

    def of_moments(theta):
        data = _moving(theta)
        mean, var = sp.marginals(*data, *moments)
        return float(np.sum(expect(mean + MEAN, var).value)) - sp.kl_textbook(data[0], *moments)

    def of_sites(sites, storage, theta):
        data = _moving(theta)
        return sp.projected_bound(
            *data, sp.convert(data[0], sites, storage, "projected"), expect, MEAN
        )

    return {
        "projected": lambda theta: of_sites(sites, "projected", theta),
        "whitened": lambda theta: of_sites(whitened, "whitened", theta),
        "unprojected": lambda theta: of_sites(unprojected, "unprojected", theta),
        "moments": of_moments,
    }


@pytest.mark.exhaustive
def test_what_is_held_fixed_matters_only_when_the_hyperparameters_have_moved():
    old, expect = np.zeros(4), setting()[2]
    held = _held_fixed(sp.run(*_moving(old), expect, MEAN), old, expect)
    slopes = {storage: gradient(value, old) for storage, value in held.items()}
    for slope in slopes.values():
        assert_allclose(slope, slopes["projected"], atol=1e-7)
    moved = np.array([0.5, 0.4, 0.2, -0.1])
    best = sp.projected_bound(*_moving(moved), sp.run(*_moving(moved), expect, MEAN), expect, MEAN)
    gaps = {storage: best - value(moved) for storage, value in held.items()}
    assert (
        1e-6 < gaps["projected"] < 0.5 * min(gaps[name] for name in gaps if name != "projected")
    ), gaps


def test_whitened_sites_are_stored_anew_when_the_kernel_moves():
    old, new = _moving(np.zeros(4))[0], _moving(np.array([0.5, 0.4, 0.2, -0.1]))[0]
    sites = random_sites()
    moved = sp.move_whitened(old, new, sp.convert(old, sites, "projected", "whitened"))
    same(moved, sp.convert(new, sites, "projected", "whitened"), 1e-11)
    same(sp.moments(new, moved, "whitened"), sp.moments(new, sites, "projected"), 1e-10)


def _model(theta, X):
    return gr.matern32(X, X, np.exp(theta[0]), np.exp(theta[1])), theta[2] * X[:, 0] + theta[3]


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", [LIKELIHOODS["bernoulli"], cvi.student_t(3.0, 0.5)])
def test_gradients_of_the_full_gp_with_sites_or_q_held_fixed(likelihood):
    rng, theta = np.random.default_rng(0), np.array([0.2, -0.1, 0.5, -0.3])
    X, expect = rng.normal(size=(6, 2)), cvi.quadrature(likelihood, labels("bernoulli", 6))
    sites = cvi.Sites(rng.normal(size=6), np.append(rng.uniform(0.2, 2.0, 5), -0.1))

    def slopes(sites):
        mean, cov = cvi.posterior(*_model(theta, X), sites)
        value = expect(*cvi.marginals(*_model(theta, X), sites)).value
        fixed_q = gradient(lambda x: cvi.textbook_bound(*_model(x, X), mean, cov, value), theta)
        proxy = gradient(lambda x: cvi.log_partition(*_model(x, X), sites), theta)
        return fixed_q, proxy, gradient(lambda x: cvi.kl_bound(*_model(x, X), sites, expect), theta)

    fixed_q, proxy, fixed_sites = slopes(sites)
    assert_allclose(proxy, fixed_q, atol=1e-8)
    assert np.abs(fixed_sites - fixed_q).max() > 1e-2
    fixed_q, _, fixed_sites = slopes(cvi.run(*_model(theta, X), cvi.no_sites(6), expect))
    assert_allclose(fixed_sites, fixed_q, atol=1e-8)


def test_fixed_sites_of_the_full_gp_keep_more_of_the_bound_than_a_fixed_q():
    X, expect = np.random.default_rng(0).normal(size=(8, 2)), setting()[2]
    old, new = (
        _model(np.array(theta), X) for theta in ([0.0, 0.0, 0.5, 0.0], [1.0, 0.5, 1.0, 0.3])
    )
    sites = cvi.run(*old, cvi.no_sites(8), expect)
    q, value = cvi.posterior(*old, sites), expect(*cvi.marginals(*old, sites)).value
    best = cvi.kl_bound(*new, cvi.run(*new, sites, expect), expect)
    chain = [cvi.textbook_bound(*new, *q, value), cvi.kl_bound(*new, sites, expect), best]
    assert np.all(np.diff(chain) > 1e-4) and chain[2] - chain[1] < 0.1 * (chain[1] - chain[0]), (
        chain
    )


def _jaakkola_jordan(K, y):
    """The bound of Jaakkola and Jordan on log p(y) for y [N] in {0, 1} and the logistic link."""
    xi = np.ones(len(y))
    for _ in range(100):
        slope = np.tanh(xi / 2) / (4 * xi)
        sites = cvi.Sites(y - 0.5, 2 * slope)
        mean, var = cvi.marginals(K, 0.0 * y, sites)
        xi = np.sqrt(mean**2 + var)  # (C39)
    quadratic = np.sum(log_expit(xi) - 0.5 * xi + slope * xi**2)  # (C39)
    return cvi.log_partition(K, 0.0 * y, sites) + quadratic  # (C39)


def test_order_of_the_bounds_on_the_evidence():
    k, data, expect = setting(N=3, M=2)
    K, y = k.K_x, labels("bernoulli", 3)
    z, weights = hermegauss(40)
    f = np.linalg.cholesky(K) @ np.array(list(product(z, repeat=3))).T
    log_weights = np.array(list(product(np.log(weights / np.sqrt(2 * np.pi)), repeat=3))).sum(1)
    evidence = logsumexp(log_weights + np.sum(LIKELIHOODS["bernoulli"].log_prob(y[:, None], f), 0))
    bound = cvi.kl_bound(K, np.zeros(3), cvi.run(K, np.zeros(3), cvi.no_sites(3), expect), expect)
    assert _jaakkola_jordan(K, y) + 1e-5 < bound < evidence - 1e-5
    assert evidence - _jaakkola_jordan(K, y) < 0.1
    sparse = sp.projected_bound(*data, sp.run(*data, expect), expect)
    assert bound - 0.5 < sparse < bound - 1e-5
