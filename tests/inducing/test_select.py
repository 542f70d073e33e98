"""What each method promises, and each refusal with its message."""

from __future__ import annotations

from contextlib import nullcontext

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import RBF, Constant, Linear, Matern32, SharedIndependent

from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.inducing import select

METHODS = ["greedy_variance", "kmeans", "random"]


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((300, 2))


def _rows(X: np.ndarray) -> set[tuple]:
    return set(map(tuple, X))


def _conditional_variance(kernel, X: np.ndarray, Z: np.ndarray, jitter: float = 0.0) -> np.ndarray:
    K_zx = kernel(Z, X).numpy()
    K_z = kernel(Z).numpy() + jitter * np.eye(len(Z))
    return kernel(X, full_cov=False).numpy() - np.sum(K_zx * np.linalg.solve(K_z, K_zx), axis=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("M", [1, 40, 300])
def test_distinct_points_of_the_right_shape(X: np.ndarray, method: str, M: int) -> None:
    Z = select(X, M, Matern32(), method=method)
    assert isinstance(Z, np.ndarray) and Z.shape == (M, 2) and Z.dtype == np.float64
    assert len(_rows(Z)) == M
    assert method == "kmeans" or _rows(Z) <= _rows(X)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_seed(X: np.ndarray, method: str) -> None:
    def choose(seed) -> np.ndarray:
        with pytest.warns(UserWarning) if method != "random" else nullcontext():
            return select(X, 20, Matern32(), method=method, seed=seed, max_rows=150)

    np.testing.assert_array_equal(choose(3), choose(3))
    np.testing.assert_array_equal(choose(3), choose(np.random.default_rng(3)))
    assert not np.array_equal(choose(3), choose(4))


@pytest.mark.parametrize("method", METHODS)
def test_global_generators_are_left_alone(X: np.ndarray, method: str) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    select(X, 20, Matern32(), method=method)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel_dtype", [np.float32, np.float64])
def test_dtype_is_that_of_x(X: np.ndarray, method: str, kernel_dtype: type) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=kernel_dtype)):
        kernel = Matern32()
        single = select(X.astype(np.float32), 20, kernel, method=method, given=np.zeros((1, 2)))
        assert single.dtype == np.float32
        assert select(X, 20, kernel, method=method).dtype == np.float64
        whole = select((4 * X).astype(int), 20, kernel, method=method)
        assert whole.dtype == kernel_dtype and len(_rows(whole)) == 20


@pytest.mark.exhaustive
def test_tensors_and_lists_are_accepted(X: np.ndarray) -> None:
    expected = select(X, 10, Matern32(), given=X[:3])
    np.testing.assert_array_equal(
        select(tf.constant(X), 10, Matern32(), given=tf.Variable(X[:3])), expected
    )
    np.testing.assert_array_equal(
        select(X.tolist(), 10, Matern32(), given=X[:3].tolist()), expected
    )


@pytest.mark.exhaustive
def test_greedy_takes_the_largest_conditional_variance(X: np.ndarray) -> None:
    kernel = Matern32(variance=2.0, lengthscales=[0.5, 1.0]) + Linear()  # not stationary: no ties
    Z = select(X, 30, kernel)
    np.testing.assert_array_equal(Z[0], X[np.argmax(kernel(X, full_cov=False))])
    for m in range(1, 30):
        variance = _conditional_variance(kernel, X, Z[:m])
        np.testing.assert_array_equal(Z[m], X[np.argmax(variance)])
    np.testing.assert_array_equal(select(X, 12, kernel), Z[:12])


@pytest.mark.exhaustive
def test_greedy_given_beta_continues_where_beta_ends(X: np.ndarray) -> None:
    kernel = Matern32(lengthscales=0.7) + Linear()
    both = select(X, 40, kernel)
    beta, gamma = both[:15], select(X, 25, kernel, given=both[:15])
    np.testing.assert_array_equal(gamma, both[15:])
    first = X[np.argmax(_conditional_variance(kernel, X, beta))]
    np.testing.assert_array_equal(gamma[0], first)


def test_greedy_leaves_no_point_far_from_all(X: np.ndarray) -> None:
    kernel = RBF(lengthscales=0.5)
    chosen = {method: select(X, 100, kernel, method=method) for method in METHODS}
    left = {
        method: np.max(_conditional_variance(kernel, X, Z, 1e-6)) for method, Z in chosen.items()
    }
    assert left["greedy_variance"] < 0.1 * min(left["random"], left["kmeans"])


def test_kmeans_finds_clusters(rng: np.random.Generator) -> None:
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    X = np.concatenate([c + 0.1 * rng.standard_normal((100, 2)) for c in centres])
    spread = [np.ptp(select(X, 3, method="kmeans", seed=seed), axis=0).min() for seed in range(10)]
    assert max(spread) > 9.8  # 10 starts that miss all three clusters: probability below 1e-4
    near = select(X, 30, method="kmeans")
    assert np.max(np.min(np.linalg.norm(X[:, None] - near, axis=-1), axis=1)) < 0.5


def test_kmeans_repairs_empty_clusters(monkeypatch: pytest.MonkeyPatch, X: np.ndarray) -> None:
    def two_empty_and_two_equal(data, start, minit):
        centres = start + 100.0
        centres[3] = centres[2]
        return centres, np.repeat(np.arange(2, len(start)), 1)

    monkeypatch.setitem(select.__globals__, "kmeans2", two_empty_and_two_equal)
    Z = select(X, 10, method="kmeans")
    assert len(_rows(Z)) == 10
    assert np.sum(Z[:, 0] > 50) == 7 and np.sum([tuple(z) in _rows(X) for z in Z]) == 3


@pytest.mark.parametrize("method", METHODS)
def test_given_points_are_avoided(method: str) -> None:
    X = np.arange(12.0)[:, None]
    given = X[[0, 3, 7]]
    Z = select(np.concatenate([X, X]), 9, Matern32(), method=method, given=given)
    assert len(_rows(Z)) == 9 and not _rows(Z) & _rows(given)
    if method != "kmeans":
        assert _rows(Z) | _rows(given) == _rows(X)


def test_kmeans_centre_on_a_given_point_is_replaced() -> None:
    X = np.array([[-1.0], [1.0], [9.0]])
    Z = select(X, 1, method="kmeans", given=[[3.0]])  # the mean of X
    assert _rows(Z) <= _rows(X)


@pytest.mark.parametrize(
    "kernel", [Constant(), Linear(), RBF(lengthscales=100.0)], ids=lambda k: type(k).__name__
)
def test_greedy_without_variance_left_completes_at_random(X: np.ndarray, kernel) -> None:
    with pytest.warns(
        UserWarning, match=r"Only \d+ of M=50 points have any variance left .* are random rows"
    ):
        Z = select(X, 50, kernel)
    assert len(_rows(Z)) == 50 and _rows(Z) <= _rows(X)


def test_repeated_active_dims_count_as_no_variance() -> None:
    X = np.stack(np.meshgrid(np.arange(5.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    with pytest.warns(UserWarning, match="Only 5 of M=8"):
        Z = select(X, 8, Matern32(active_dims=[0]))
    assert len(_rows(Z)) == 8 and len(set(Z[:5, 0])) == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_a_million_rows(method: str, rng: np.random.Generator) -> None:
    X = rng.standard_normal((1_000_000, 3)).astype(np.float32)
    if method == "random":
        Z = select(X, 100, method=method)
    else:
        message = (
            "X has N=1000000 rows; .* looks at a random max_rows=20000 of them.*pass"
            " max_rows=1000000"
        )
        with pytest.warns(UserWarning, match=message) as record:
            Z = select(X, 100, Matern32(), method=method)
        assert record[0].filename == __file__
    assert Z.shape == (100, 3)


@pytest.mark.parametrize("method", ["kmeans", "random"])
def test_rare_rows_are_found_when_the_sample_has_too_few(method: str) -> None:
    X = np.zeros((100_000, 1))
    X[:200, 0] = np.arange(200)
    with pytest.warns(UserWarning) if method == "kmeans" else nullcontext():
        Z = select(X, 150, method=method)
    assert len(_rows(Z)) == 150


def test_max_rows_above_n_looks_at_all_rows(X: np.ndarray) -> None:
    np.testing.assert_array_equal(
        select(X, 10, Matern32(), max_rows=300), select(X, 10, Matern32())
    )


ONES = np.ones((5, 2))
LINE = np.arange(5.0)[:, None]
BAD = [
    ((np.arange(5.0), 2), {}, r"X has shape \[5\], but must be \[N, D\]; use X\[:, None\]"),
    ((np.zeros((2, 2, 2)), 2), {}, r"X has shape \[2, 2, 2\], but must be \[N, D\]\.$"),
    ((np.zeros((5, 0)), 2), {}, r"X has shape \[5, 0\]"),
    (([[0.0], [np.nan]], 1), {}, "X has NaN or infinite values in 1 of 2 rows, row 1 first"),
    (([["a"]], 1), {}, "X holds string values; encode them as numbers"),
    ((LINE, 0), {}, "M=0 must be an integer, at least 1"),
    ((LINE, -3), {}, "M=-3 must be an integer"),
    ((LINE, 2.0), {}, "M=2.0 must be an integer"),
    ((LINE, 6), {}, "M=6 points cannot be chosen from the 5 rows of X: use M <= 5"),
    (
        (ONES, 2),
        {},
        "M=2 points cannot be chosen: only 1 of the 5 rows of X are distinct. Use M <= 1",
    ),
    (
        (LINE, 4),
        {"given": LINE[:2]},
        "only 3 of the 5 rows of X are distinct and not in `given`. Use M <= 3",
    ),
    ((LINE, 2), {"given": LINE[[1, 1]]}, "given has 1 duplicate rows"),
    ((LINE, 2), {"given": ONES}, "given has 2 columns, the inputs X have 1"),
    ((LINE, 3), {"max_rows": 2}, "max_rows=2 is less than M=3"),
    ((LINE, 3), {"max_rows": 0}, "max_rows=0 must be an integer"),
]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arguments, options, message", BAD)
def test_bad_input_is_refused(method: str, arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        select(*arguments, Matern32(), method=method, **options)


def test_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownOptionError, match="'k-means' is not known.*'greedy_variance', 'kmeans', 'random'"
    ):
        select(LINE, 2, method="k-means")


@pytest.mark.parametrize(
    "kernel, message",
    [
        (None, "needs a kernel: pass kernel=.*method='kmeans'"),
        (
            SharedIndependent(Matern32(), 2),
            r"has several outputs: .*kernel.latent_kernels\[0\]",
        ),
        ("rbf", "kernel is a str: pass a gpflow.kernels.Kernel"),
        (
            Matern32(lengthscales=[1.0, 1.0]),
            "Matern32 cannot be evaluated on X with 3 columns.*lengthscales",
        ),
        (
            Matern32(active_dims=[7]),
            "Matern32 cannot be evaluated on X with 3 columns.*active_dims",
        ),
    ],
)
def test_unusable_kernels_are_refused(kernel, message: str) -> None:
    with pytest.raises(DataError, match=message):
        select(np.tile(LINE, 3), 2, kernel)


def test_infinite_variance_is_refused() -> None:
    with pytest.raises(
        DataError, match="Linear gives variances that are NaN, infinite or negative"
    ):
        select(1e200 * LINE, 2, Linear())


def test_failed_factorisation_names_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(select.__globals__, "add_jitter", lambda matrix: matrix - 2.0)
    with pytest.raises(
        NumericalError, match=r"k\(given, given\) \(3 x 3\) is not positive definite"
    ):
        select(LINE, 2, Matern32(), given=LINE[:3])


def test_too_much_memory_is_refused_before_it_is_taken() -> None:
    X = np.broadcast_to(np.float64(0.0), (100_000, 1))
    with pytest.raises(DataError, match="M=50000 and 100000 rows needs 37 GiB, more than 4: use"):
        select(X, 50_000, Matern32())


def test_select_inside_a_graph_is_refused() -> None:
    with pytest.raises(DataError, match="X has no values inside a tf.function"):
        tf.function(lambda X: select(X, 2, method="random"), autograph=False)(tf.constant(LINE))
