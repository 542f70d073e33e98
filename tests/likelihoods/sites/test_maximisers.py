"""Closed forms of the conjugate (V15), against a search for its maximum and against differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tests.likelihoods.sites.site_cases import CASES, CLOSED, SIGMA, H, built
from tests.reference import lcl_sites as ref

closed = pytest.mark.parametrize("name", CLOSED)
LAM = np.array([[0.3], [2.0], [0.01], [1.1], [0.6], [0.2]])
RHO = np.array([[0.1], [0.7], [1.3], [0.05], [2.0], [0.4]])
SIGMA_K = np.array([[0.5], [0.8], [1.4], [0.2], [0.9], [0.6]])


def slopes(name: str) -> np.ndarray:
    """Some alpha [6, 1] inside S."""
    return built(name).expand(tf.constant(H), tf.constant(SIGMA + 0.8)).d_h.numpy()


def tensors(*arrays: np.ndarray) -> list[tf.Tensor]:
    return [tf.constant(array) for array in arrays]


@pytest.mark.costly(keep=2)
@closed
def test_maximum_against_a_search(name):
    loss, alpha = built(name), slopes(name)
    found = loss.maximiser(*tensors(alpha, LAM, SIGMA_K, RHO))
    lowest = 0.5 if name in ("Laplace", "hinge") else 1e-6
    for n in [0, 1, 4]:
        y = CASES[name].Y[n, 0]
        site = CASES[name].loss(y)

        def f(h: float, sigma: float, site: ref.Loss = site, y: float = y) -> float:
            if name not in ("Laplace", "hinge"):
                return ref.hermite(site, h, sigma, 30)
            if name == "hinge":  # half of the absolute value of f - s, and half of 1 - s f
                s = 2.0 * y - 1.0
                return 0.35 * (_laplace(h - s, sigma) - np.log(1.4)) + 0.5 * (1.0 - s * h)
            return _laplace(h - y, sigma)

        start = (float(found.h[n, 0]) + 0.3, float(found.sigma[n, 0]) * 1.2)
        arguments = [float(array[n, 0]) for array in (alpha, LAM, SIGMA_K, RHO)]
        h, sigma, value = ref.maximise(f, start, *arguments, lowest=lowest * SIGMA_K[n, 0])
        assert_allclose(found.value[n, 0], value, rtol=1e-6, atol=1e-6)
        assert_allclose([found.h[n, 0], found.sigma[n, 0]], [h, sigma], rtol=2e-3, atol=2e-3)


def _laplace(residual: float, sigma: float) -> float:
    """f of Laplace noise of scale 0.7 by a fine grid, shifted so that the kink falls on it."""
    edges = np.linspace(0.0, 12.0, 4001)
    weights = np.full(4001, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    density = np.exp(-0.5 * (edges * [[1.0], [-1.0]] - residual / sigma) ** 2) / np.sqrt(
        2.0 * np.pi
    )
    mean = np.sum(density * weights * edges) * sigma * (edges[1] / 3.0)
    inside = abs(residual / sigma) < 4.0
    return np.log(1.4) + (mean if inside else abs(residual)) / 0.7


@closed
def test_the_maximum_is_stationary(name):
    loss, alpha = built(name), slopes(name)
    found = loss.maximiser(*tensors(alpha, LAM, SIGMA_K, RHO))
    at = loss.expand(found.h, found.sigma)
    assert_allclose(at.d_h, alpha, rtol=1e-9, atol=1e-10)
    pull = LAM * SIGMA_K - at.d_s - RHO * (found.sigma - SIGMA_K)
    clamped = (np.abs(found.sigma - 0.5 * SIGMA_K) < 1e-12) & (name in ("Laplace", "hinge"))
    assert np.all(np.abs(np.where(clamped, 0.0, pull)) < 1e-10 * (1.0 + at.d_ss))
    assert np.all(np.where(clamped, pull, -1.0) <= 0.0), (
        "at the clamp the objective must fall with sigma"
    )
    assert np.any(clamped) or name != "Laplace", "the clamp must be tested too"
    point = [found.h, found.sigma, alpha, LAM, SIGMA_K, RHO]
    f = [
        ref.dual_objective(lambda *_, v=v: v, (h, s), a, lam, k, r)
        for v, h, s, a, lam, k, r in zip(at.value, *point)
    ]
    assert_allclose(found.value, np.array(f), rtol=1e-10, atol=1e-11)


@pytest.mark.exhaustive
@closed
def test_derivatives_of_the_maximiser(name):
    """(V17), and the envelope: the derivatives of the maximum are h* and sigma_k (sigma* - sigma_k
    / 2).
    """
    loss, alpha, step = built(name), slopes(name), 1e-6
    found = loss.maximiser(*tensors(alpha, LAM, SIGMA_K, RHO))
    up, down = (loss.maximiser(*tensors(alpha + s, LAM, SIGMA_K, RHO)) for s in (step, -step))
    rtol = (
        1e-4 if name == "hinge" else 1e-6
    )  # one slope is so close to the end of S that the difference has this error
    assert_allclose(found.d_h_d_alpha, (up.h - down.h) / (2 * step), rtol=rtol, atol=1e-6)
    assert_allclose(
        found.d_h_d_lam, SIGMA_K * (up.sigma - down.sigma) / (2 * step), rtol=rtol, atol=1e-7
    )
    assert_allclose(found.h, (up.value - down.value) / (2 * step), rtol=rtol, atol=1e-7)
    up, down = (loss.maximiser(*tensors(alpha, LAM + s, SIGMA_K, RHO)) for s in (step, -step))
    assert_allclose(found.d_h_d_lam, (up.h - down.h) / (2 * step), rtol=rtol, atol=1e-7)
    assert_allclose(found.d_s_d_lam, (up.sigma - down.sigma) / (2 * step), rtol=rtol, atol=1e-7)
    envelope = SIGMA_K * (found.sigma - 0.5 * SIGMA_K)
    assert_allclose(envelope, (up.value - down.value) / (2 * step), rtol=1e-6, atol=1e-7)


def test_poisson_at_its_fixed_point_keeps_sigma():
    loss, alpha = built("Poisson"), slopes("Poisson")
    found = loss.maximiser(*tensors(alpha, CASES["Poisson"].Y + alpha, SIGMA_K, RHO))
    assert_allclose(found.sigma, SIGMA_K, rtol=1e-14)


@closed
def test_ends_of_S_give_no_nan(name):
    loss = built(name)
    inside = 1e-10
    for end, into in [
        (loss.lower, inside),
        (loss.upper, -inside),
        (loss.lower, 0.0),
        (loss.upper, 0.0),
    ]:
        alpha = tf.where(tf.math.is_finite(end), end + into, tf.sign(end) * 1e8)
        for field, array in loss.maximiser(alpha, *tensors(LAM, SIGMA_K, RHO))._asdict().items():
            assert np.all(np.isfinite(array)), field


@pytest.mark.exhaustive
def test_only_laplace_needs_a_penalty():
    assert [name for name in CASES if built(name).needs_penalty] == ["Laplace", "hinge"]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", [name for name in CASES if name not in CLOSED])
def test_others_have_no_closed_form(name):
    assert built(name).maximiser(*tensors(slopes(name), LAM, SIGMA_K, RHO)) is None
