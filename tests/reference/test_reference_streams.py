"""The reference of streams: batches add up, the bound is one, and Bui et al.'s regression has the
same optimum.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import streams as st
from .grams import matern32

NOISE, JITTER = 0.3, 1e-3
RNG = np.random.default_rng(0)
X, A, B = (2.0 * RNG.normal(size=(n, 2)) for n in (7, 4, 5))
Y = RNG.normal(size=7)
FIRST, SECOND = slice(0, 3), slice(3, 7)


def k(left, right, scale=1.0):
    """The kernel, with jitter between equal points."""
    equal = np.all(left[:, None] == right[None], axis=-1)
    return matern32(left, right, scale * 1.3, scale * 0.8) + JITTER * equal


def data(points, rows, scale=1.0):
    x = X[rows]
    return (
        k(points, points, scale),
        matern32(points, x, scale * 1.3, scale * 0.8),
        np.full(len(x), scale * 1.3),
        Y[rows],
        NOISE,
    )


def old():
    return st.absorbed(*data(A, FIRST), st.nothing(4))


def test_batches_add_up_to_one():
    both, once = (
        st.absorbed(*data(A, SECOND), old()),
        st.absorbed(*data(A, slice(0, 7)), st.nothing(4)),
    )
    for left, right in zip(both, once):
        assert_allclose(left, right, rtol=1e-12)


def test_q_says_what_the_data_said_up_to_the_constant():
    K = k(A, A)
    m, S = st.best(K, old())
    said = st.from_q(K, m, S)
    assert_allclose(said.theta, old().theta, rtol=1e-10)
    assert_allclose(said.Lambda, old().Lambda, rtol=1e-9, atol=1e-9)
    assert_allclose(
        st.bound(K, m, S, said), 0.0, atol=1e-10
    )  # p(u) l(u) is q(u), which integrates to one


@pytest.mark.parametrize("scale", [1.0, 1.7], ids=["kernel-stays", "kernel-moves"])
def test_points_that_move_are_those_of_bui_et_al(scale):
    K_a, K_ab, (K_b, K_bx, kdiag, y, noise) = k(A, A, scale), k(A, B, scale), data(B, SECOND, scale)
    total = st.absorbed(K_b, K_bx, kdiag, y, noise, st.projected(K_a, K_ab, K_b, old()))
    m, S = st.best(K_b, total)
    at_best = st.bound(K_b, m, S, total)
    spread = old()._replace(
        Lambda=old().Lambda + 1e-6 * np.eye(4)
    )  # three data leave a direction of four without a word
    again = st.absorbed(K_b, K_bx, kdiag, y, noise, st.projected(K_a, K_ab, K_b, spread))
    mine = st.bound(K_b, *st.best(K_b, again), again)
    assert_allclose(st.collapsed(K_b, K_bx, kdiag, y, noise, (K_a, K_ab), spread), mine, rtol=1e-9)
    assert_allclose(mine, at_best, atol=1e-4)
    assert st.bound(K_b, m + 0.1, S, total) < at_best and st.bound(K_b, m, 1.2 * S, total) < at_best


@pytest.mark.parametrize("scale", [1.0, 1.7], ids=["kernel-stays", "kernel-moves"])
def test_bound_is_below_the_evidence_and_reaches_it_where_points_include_all(scale):
    x = X[SECOND]
    joint = np.block(
        [
            [k(A, A, scale), matern32(A, x, scale * 1.3, scale * 0.8)],
            [matern32(x, A, scale * 1.3, scale * 0.8), k(x, x, scale)],
        ]
    )
    joint[4:, 4:] -= JITTER * np.eye(4)
    exact = st.evidence(joint, 4, Y[SECOND], NOISE, old())
    K_b = k(B, B, scale)
    total = st.absorbed(
        *data(B, SECOND, scale), st.projected(k(A, A, scale), k(A, B, scale), K_b, old())
    )
    assert st.bound(K_b, *st.best(K_b, total), total) < exact - 1e-3
    rows = joint[:, 4:]  # the points a and x themselves, without jitter at x
    total = st.absorbed(
        joint,
        rows,
        np.full(4, scale * 1.3),
        Y[SECOND],
        NOISE,
        st.projected(joint[:4, :4], joint[:4], joint, old()),
    )
    assert_allclose(st.bound(joint, *st.best(joint, total), total), exact, rtol=1e-9)
