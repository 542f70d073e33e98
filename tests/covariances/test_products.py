"""Products with kernel matrices that are never stored, against the dense matrix."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    RBF,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    SeparateIndependent,
    SharedIndependent,
    White,
)
from numpy.testing import assert_allclose

from gpflow_decoupled.covariances import blocks as stationary_products
from gpflow_decoupled.covariances import products, stationary
from gpflow_decoupled.covariances.blocks import chunks
from gpflow_decoupled.covariances.products import (
    diagonal_excess,
    gram_norm,
    gram_product,
    kernel_product,
)
from gpflow_decoupled.errors import DataError, UnknownOptionError
from tests.reference.grams import matern32

ARD = [0.5, 0.8, 1.3]
KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": lambda: RBF(1.4, ARD),
    "matern32": lambda: Matern32(0.7, ARD),
    "matern52": lambda: Matern52(1.1, 0.9),
    "active_dims": lambda: Matern32(0.7, [0.6, 0.9], active_dims=[0, 2]),
    "matern12": lambda: Matern12(0.7, ARD),
    "sum": lambda: RBF(1.4, ARD) + Linear(0.3),
    "noise": lambda: Matern32(1.4, ARD) + White(0.2),
    "product": lambda: Matern32() * Matern52(lengthscales=2.0, active_dims=[1]),
    "periodic": lambda: Periodic(RBF(), period=1.7),
}
FUSED = ["rbf", "matern32", "matern52", "active_dims"]


def _problem(rng: np.random.Generator, same: bool, R: int = 3, N: int = 37, M: int = 23) -> tuple:
    """Inputs that are not centred, neither number of them a multiple of the block; V, and weights
    of a scalar result.
    """
    X, Z = (tf.Variable(rng.normal(size=(size, 3)) + 2.0) for size in (N, M))
    V = tf.Variable(rng.normal(size=(N if same else M, R)))
    return X, None if same else Z, V, tf.constant(rng.normal(size=(N, R)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_product_and_gradient_are_those_of_the_dense_matrix(
    name: str, same: bool, graph: bool, rng: np.random.Generator
) -> None:
    _compare(KERNELS[name](), same, graph, rng)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*FUSED, "sum", "latents", "one kernel, two columns", "empty"])
def test_norm_and_gradient_are_those_of_the_dense_matrix(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one, two and five blocks a side, the last one smaller."""
    own = [Matern52(0.7, ARD), RBF(1.3, 0.9)]
    kernel = SeparateIndependent(own) if name == "latents" else KERNELS.get(name, Matern52)()
    points = InducingPoints(rng.normal(size=(0 if name == "empty" else 23, 3)) + 2.0)
    L = 2 if "," in name or name == "latents" else 1
    Z = points.Z
    points = SharedIndependentInducingVariables(points) if name == "latents" else points
    a = tf.Variable(rng.normal(size=(int(Z.shape[0]), L)))
    variables = [a, *kernel.trainable_variables, *points.trainable_variables]

    def dense() -> tf.Tensor:
        each = list(kernel.kernels) if name == "latents" else [kernel] * L
        found = [one(Z) @ a[:, i : i + 1] for i, one in enumerate(each)]
        return 3.0 * tf.reduce_sum(a * tf.concat(found, axis=1))

    with tf.GradientTape() as tape:
        value = dense()
    expected = tape.gradient(value, variables)
    for rows in (23, 12, 5):
        monkeypatch.setattr(stationary, "_ROWS", rows)
        with tf.GradientTape() as tape:
            found = 3.0 * gram_norm(kernel, points, a)
        assert_allclose(found, value, rtol=1e-12)
        for ours, theirs in zip(tape.gradient(found, variables), expected):
            assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("same", [False, True])
def test_compiled_blocks_inside_a_function(same: bool, rng: np.random.Generator) -> None:
    _compare(Matern52(0.7, ARD), same, True, rng, xla=True)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("name", FUSED)
@pytest.mark.costly(keep=2)
def test_one_column_of_a_small_matrix_has_a_gradient_of_its_own(
    name: str, same: bool, rng: np.random.Generator
) -> None:
    _compare(KERNELS[name](), same, False, rng, R=1, block=None)


def _compare(
    kernel: Kernel,
    same: bool,
    graph: bool,
    rng: np.random.Generator,
    R: int = 3,
    block: tuple[int, int] | None = (8, 16),
    **options: bool,
) -> None:
    X, Z, V, weights = _problem(rng, same, R)
    wanted = [X, V, *([] if same else [Z]), *kernel.trainable_variables]

    def by_blocks() -> tf.Tensor:
        return kernel_product(kernel, X, Z, V, block=block, **options)

    def dense() -> tf.Tensor:
        K = kernel(X, Z)  # the diagonal is what rounding of distances cannot change
        return tf.matmul(
            K if Z is not None else tf.linalg.set_diag(K, kernel(X, full_cov=False)), V
        )

    results = []
    for function in (tf.function(by_blocks, autograph=False) if graph else by_blocks, dense):
        with tf.GradientTape() as tape:
            product = function()
            value = tf.reduce_sum(weights * tf.sin(product))
        slopes = tape.gradient(value, wanted, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        results.append((product, slopes))
    (product, slopes), (expected, expected_slopes) = results
    assert_allclose(product, expected, rtol=1e-10, atol=1e-10)
    for found, slope in zip(slopes, expected_slopes):
        assert_allclose(found, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("R", [1, 2])
def test_one_column_against_the_formula_in_numpy(R: int, rng: np.random.Generator) -> None:
    X, Z, V, _ = _problem(rng, False, R)
    found = kernel_product(Matern32(1.3, 0.7), X, Z, V, block=(8, 16))
    assert_allclose(found, matern32(X.numpy(), Z.numpy(), 1.3, 0.7) @ V.numpy(), rtol=1e-12)
    own = kernel_product(Matern32(1.3, 0.7), X, None, tf.ones([37, R], tf.float64), block=(8, 8))
    assert_allclose(own[:, 0], matern32(X.numpy(), X.numpy(), 1.3, 0.7).sum(1), rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "dtype, sizes", [(tf.float32, {1: 32, 33: 64, 257: 512}), (tf.float64, {20: 32, 129: 256})]
)
def test_few_rows_are_not_filled_up_to_whole_blocks(
    dtype: tf.DType,
    sizes: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Blocks have as many entries as ever, and the product is the same."""
    monkeypatch.setattr(products, "_SMALL", 0)
    seen: list[tuple[int, int]] = []
    sizes_of = stationary_products._sizes
    monkeypatch.setattr(
        stationary_products, "_sizes", lambda *parts: seen.append(sizes_of(*parts)) or seen[-1]
    )
    entries = np.prod(stationary_products.BLOCKS[dtype])
    for rows, height in sizes.items():
        X, Z, V, _ = _problem(rng, False, 2, N=rows, M=50)
        found = kernel_product(Matern32(1.3, 0.7), X, Z, V, dtype=dtype)
        assert seen[-1] == (height, entries // height)
        expected = matern32(X.numpy(), Z.numpy(), 1.3, 0.7) @ V.numpy()
        tolerance = 1e-12 if dtype == tf.float64 else 1e-5
        assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUSED)
def test_symmetric_path_equals_the_general_one(name: str, rng: np.random.Generator) -> None:
    X, _, V, _ = _problem(rng, True, 1, N=50)
    general, symmetric = (
        kernel_product(KERNELS[name](), X, Z, V, block=(16, 16)) for Z in (tf.identity(X), None)
    )
    assert_allclose(
        symmetric, general, rtol=1e-7
    )  # the general one rounds the distance of a point to itself


@pytest.mark.exhaustive
@pytest.mark.parametrize("same", [False, True])
def test_blocks_in_single_precision_far_from_the_origin(
    same: bool, rng: np.random.Generator
) -> None:
    """Sums stay in double precision; without centring, distances between inputs around 1000 would
    be noise.
    """
    kernel, (X, Z, V, weights) = Matern32(0.7, ARD), _problem(rng, same, 2, N=300, M=200)
    X, Z = X + 1000.0, None if same else Z + 1000.0
    results = []
    for dtype in (None, tf.float32):
        with tf.GradientTape() as tape:
            tape.watch([X, V])
            product = kernel_product(kernel, X, Z, V, dtype=dtype, block=(64, 64))
            value = tf.reduce_sum(weights * product)
        assert product.dtype == tf.float64
        results.append([product, *tape.gradient(value, [X, V, *kernel.trainable_variables])])
    for exact, single in zip(*results):
        error = np.linalg.norm(single - exact) / np.linalg.norm(exact)
        assert 0.0 < error < 1e-5


@pytest.mark.exhaustive
def test_a_point_has_no_distance_to_itself(rng: np.random.Generator) -> None:
    """Points that are far from each other leave the diagonal alone, whose distances would be
    rounded to about a hundredth.
    """
    X, V = tf.constant(rng.normal(size=(40, 3)) * 1e3), tf.constant(rng.normal(size=(40, 1)))
    assert_allclose(
        kernel_product(Matern32(1.5), X, None, V, dtype=tf.float32, block=(16, 16)),
        1.5 * V,
        rtol=1e-6,
    )


def test_small_products_are_those_of_the_stored_matrix(rng: np.random.Generator) -> None:
    X, Z, V, _ = _problem(rng, False)
    for name in ("matern32", "matern12"):
        kernel = KERNELS[name]()
        assert_allclose(kernel_product(kernel, X, Z, V), kernel(X, Z) @ V, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["matern32", "matern12"])
def test_function_of_unknown_sizes(name: str, rng: np.random.Generator) -> None:
    kernel = KERNELS[name]()
    spec = [
        tf.TensorSpec([None, 3], tf.float64),
        tf.TensorSpec([None, 3], tf.float64),
        tf.TensorSpec([None, 2], tf.float64),
    ]
    function = tf.function(
        lambda X, Z, V: kernel_product(kernel, X, Z, V, block=(8, 16)),
        input_signature=spec,
        autograph=False,
    )
    for sizes in ((5, 40), (33, 7), (1, 1)):
        X, Z, V, _ = _problem(rng, False, 2, *sizes)
        assert_allclose(function(X, Z, V), kernel(X, Z) @ V, rtol=1e-10)
    assert function.experimental_get_tracing_count() == 1


@pytest.mark.exhaustive
def test_gradient_in_a_function_of_unknown_rows_and_known_columns(rng: np.random.Generator) -> None:
    """What the exporter traces for a model whose points are constants."""
    X, Z, V, _ = _problem(rng, False, 2, 5, 7)
    kernel = Matern32(0.7, ARD)

    def gradient(rows: tf.Tensor, block: tuple[int, int] | None) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(rows)
            total = tf.reduce_sum(
                kernel_product(kernel, rows, tf.reshape(Z, [7, 3]), V, block=block)
            )
        return tape.gradient(total, rows)

    compiled = tf.function(
        lambda rows: gradient(rows, (8, 16)),
        input_signature=[tf.TensorSpec([None, 3], tf.float64)],
        autograph=False,
    )
    assert_allclose(compiled(X), gradient(tf.constant(X), None), rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("xla", [False, True])
def test_export(xla: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    """A model with a product can be saved and loaded, compiled blocks included."""
    module, (X, Z, V, _) = tf.Module(), _problem(rng, False, 2)
    module.kernel, module.Z, module.V = Matern32(0.7, ARD), Z, V
    module.predict = tf.function(
        lambda X: kernel_product(module.kernel, X, module.Z, module.V, block=(8, 16), xla=xla),
        input_signature=[tf.TensorSpec([None, 3], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for rows in (37, 5):
        assert_allclose(loaded.predict(X[:rows]), module.kernel(X[:rows], Z) @ V, rtol=1e-10)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["matern32", "matern12"])
def test_progress_and_interrupt(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpflow_decoupled.covariances.blocks._ENTRIES", 500.0)
    monkeypatch.setattr("gpflow_decoupled.covariances.blocks.number_of_threads", lambda: 2)
    X, Z, V, _ = _problem(rng, False, 1)
    shares: list[float] = []
    whole = kernel_product(KERNELS[name](), X, Z, V, block=(8, 16), progress=shares.append)
    assert len(shares) > 2 and shares[-1] == 1.0 and shares == sorted(shares) and shares[0] < 0.5
    assert_allclose(whole, KERNELS[name]()(X, Z) @ V, rtol=1e-10)

    def interrupt(share: float) -> None:
        shares.append(share)
        signal.raise_signal(signal.SIGINT)

    shares.clear()
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a process in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel_product(KERNELS[name](), X, Z, V, block=(8, 16), progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(shares) == 1
    assert not [one for one in threading.enumerate() if one.name.startswith("ThreadPoolExecutor")]


def test_chunks_cover_every_block_once() -> None:
    for same in (False, True):
        found = chunks(100, 100, (1000, 1000), same)
        assert [one.first for one in found[1:]] == [one.last for one in found[:-1]]
        assert (found[0].first, found[-1].last) == (0, 100) and len(found) > (40 if same else 90)
        assert sum(one.entries for one in found) == (5050e6 if same else 1e10)


def test_wrong_shapes_are_refused(rng: np.random.Generator) -> None:
    X, Z, V, _ = _problem(rng, False)
    with pytest.raises(DataError, match=r"V has shape \(23, 3\) .* 37 columns"):
        kernel_product(RBF(), X, None, V)
    with pytest.raises(DataError, match=r"pass V of shape \[M, R\]"):
        kernel_product(RBF(), X, Z, V[:, 0])
    with pytest.raises(UnknownOptionError, match="dtype=tf.float16"):
        kernel_product(RBF(), X, Z, V, dtype=tf.float16, block=(8, 8))


def test_second_derivatives_are_refused(rng: np.random.Generator) -> None:
    """They would lack what comes through the sums."""
    X, Z, V, _ = _problem(rng, False)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = tf.reduce_sum(kernel_product(RBF(), X, Z, V, block=(8, 16)) ** 2)
        slope = tf.reduce_sum(inner.gradient(value, X) ** 2)
    with pytest.raises(NotImplementedError, match="differentiated once"):
        outer.gradient(slope, X)


@pytest.mark.parametrize("name", ["matern32", "matern12"])
def test_empty_inputs(name: str, rng: np.random.Generator) -> None:
    X, Z, V, _ = _problem(rng, False, 2)
    assert kernel_product(KERNELS[name](), X[:0], Z, V).shape == (0, 2)
    assert_allclose(kernel_product(KERNELS[name](), X, Z[:0], V[:0]), np.zeros([37, 2]))


def _multioutput(
    rng: np.random.Generator, kind: str
) -> tuple[Kernel, gpflow.inducing_variables.InducingVariables]:
    points = [rng.normal(size=(23, 3)) for _ in range(2)]
    if kind == "separate":
        inducing = SeparateIndependentInducingVariables([InducingPoints(one) for one in points])
        return SeparateIndependent([Matern32(0.7, ARD), Matern12()]), inducing
    if kind == "shared":
        return SharedIndependent(Matern32(0.7, ARD), 2), SharedIndependentInducingVariables(
            InducingPoints(points[0])
        )
    return RBF(), Multiscale(
        points[0], np.full((23, 3), 0.3)
    ) if kind == "multiscale" else InducingPoints(points[0])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("to", ["data", "points", "itself"])
@pytest.mark.parametrize("kind", ["single", "shared", "separate", "multiscale"])
def test_products_of_all_latents(kind: str, to: str, rng: np.random.Generator) -> None:
    """Against the stored matrices of `latents.py`."""
    from gpflow_decoupled.covariances.latents import cross_gram, gram, gram_to_data

    kernel, points = _multioutput(rng, kind)
    X, a = tf.constant(rng.normal(size=(37, 3))), tf.constant(rng.normal(size=(23, 2)))
    if to == "itself":
        other, stored = None, gram(kernel, points)
    elif to == "data":
        other, stored = X, gram_to_data(kernel, points, X)
    else:
        other = InducingPoints(X.numpy())
        if kind in ("shared", "separate"):
            other = SharedIndependentInducingVariables(other)
        stored = cross_gram(kernel, points, other)
    shares: list[float] = []
    found = gram_product(kernel, points, other, a, block=(8, 16), progress=shares.append)
    expected = tf.concat(
        [tf.linalg.matvec(one, v, transpose_a=True)[:, None] for one, v in _pairs(stored, a)],
        axis=1,
    )
    assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    assert shares == sorted(shares) and (kind == "multiscale" or shares[-1] == 1.0)
    rows = tf.constant([3, 0, 11])
    if kind != "multiscale" or to == "data":
        of_rows = gram_product(kernel, points, other, a, rows=rows)
        assert_allclose(of_rows, tf.gather(expected, rows), rtol=1e-10, atol=1e-10)
    else:
        with pytest.raises(NotImplementedError, match="plain inducing points, not"):
            gram_product(kernel, points, None, a, rows=rows)


def _pairs(stored: tf.Tensor, a: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    columns = tf.unstack(a, axis=1)
    return list(zip(tf.unstack(stored) * (len(columns) // stored.shape[0]), columns))


@pytest.mark.parametrize("kind", ["single", "noise", "shared", "separate"])
def test_rows_of_the_gram_matrix_with_what_their_diagonal_has_in_excess(
    kind: str, rng: np.random.Generator
) -> None:
    """More points than a block has, two of them equal: noise belongs to a row, and not to its
    copy.
    """
    X, a = rng.normal(size=(300, 3)), tf.constant(rng.normal(size=(300, 2)))
    X[299] = X[0]
    kernel, _ = _multioutput(rng, "single" if kind == "noise" else kind)
    if kind == "noise":
        kernel = RBF(1.4, ARD) + White(0.2)
    if kind == "separate":
        kernel = SeparateIndependent([RBF(), RBF() + White(0.2)])
    points: gpflow.inducing_variables.InducingVariables = InducingPoints(X)
    if kind in ("shared", "separate"):
        points = SharedIndependentInducingVariables(points)
    excess = diagonal_excess(kernel, points)
    assert excess.shape == (300, 2 if kind == "separate" else 1)
    noise = {"noise": [0.2], "separate": [0.0, 0.2]}.get(kind, [0.0])
    assert_allclose(excess, np.broadcast_to(noise, excess.shape), atol=1e-12)
    rows = np.array([0, 7, 299])
    found = gram_product(kernel, points, X[rows], a) + tf.gather(excess, rows) * tf.gather(a, rows)
    assert_allclose(
        found, tf.gather(gram_product(kernel, points, None, a), rows), rtol=1e-10, atol=1e-10
    )


def test_no_covariance_between_two_sets_that_are_not_points(rng: np.random.Generator) -> None:
    kernel, points = _multioutput(rng, "multiscale")
    with pytest.raises(
        NotImplementedError, match="make one of gamma and beta plain inducing points"
    ):
        gram_product(kernel, points, points, tf.ones([23, 1], tf.float64))


_MEMORY = """
import gpflow, numpy as np, tensorflow as tf
from benchmarks.harness.measuring import peak_megabytes
from gpflow_decoupled.covariances.products import kernel_product
X, V = (tf.constant(np.random.default_rng(0).normal(size=(20_000, columns))) for columns in (3, 1))
kernel = KERNEL
kernel_product(kernel, X[:2000], None, V[:2000])
before = peak_megabytes()
with tf.GradientTape() as tape:
    product = kernel_product(kernel, X, None, V, dtype=tf.float32)
tape.gradient(product, kernel.trainable_variables)
print(peak_megabytes() - before)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", ["gpflow.kernels.Matern32()", "gpflow.kernels.Matern12()"])
def test_memory_is_linear_in_the_number_of_rows(kernel: str) -> None:
    """The matrix would take 3.2 GB."""
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY.replace("KERNEL", kernel)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 200.0
