"""Graphs are traced without AutoGraph, and with it for code that needs it."""

from __future__ import annotations

import gc
import inspect
import logging
import weakref
from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from tensorflow.python.framework.func_graph import FuncGraph

import gpflow_decoupled
import gpflow_decoupled as gd
from gpflow_decoupled import errors
from gpflow_decoupled.compilation import Compiled, rarely
from gpflow_decoupled.linalg.cholesky import cholesky
from gpflow_decoupled.models import CVIGP


def test_what_needs_no_autograph_is_traced_once_as_it_is_written() -> None:
    sources = []

    def double(x: tf.Tensor) -> tf.Tensor:
        sources.append(inspect.currentframe().f_code.co_filename)  # type: ignore[union-attr]
        return 2.0 * x

    compiled = Compiled(double, input_signature=[tf.TensorSpec([None])])
    assert compiled(tf.ones(2)).numpy().tolist() == [2.0, 2.0]
    assert compiled(tf.ones(3)).shape == [3]
    assert compiled.traces == 1 and sources == [__file__]


def test_python_branches_and_loops_over_tensors_are_compiled() -> None:
    def triangular(n: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0)
        if n > 100:
            total = tf.constant(-1)
        for k in tf.range(n):
            total += k + 1
        return total

    compiled = Compiled(triangular)
    compiled.get_concrete_function(tf.TensorSpec([], tf.int32))
    assert [int(compiled(tf.constant(n))) for n in (0, 4, 10)] == [0, 10, 55]
    assert compiled.traces == 1


def test_a_bound_graph_serves_its_shapes_and_types_alone() -> None:
    compiled = Compiled(lambda x, y: (2 * x, y + 1), reduce_retracing=True)
    compiled.bind(tf.ones(2), tf.constant(1))
    bound = compiled._bound[1]
    compiled._bound = compiled._bound[0], lambda *args: (used.append(args), bound(*args))[1]
    used: list = []
    for x in (tf.ones(2), tf.ones(3), tf.ones(2, tf.float64), np.ones(2)):
        doubled, more = compiled(x, tf.constant(1))
        np.testing.assert_array_equal(doubled, 2 * np.ones(len(x)))
        assert int(more) == 2 and doubled.dtype == x.dtype
    assert len(used) == 1


def test_a_rare_branch_is_one_operation_and_does_the_same() -> None:
    written = tf.Variable(0.0)

    def rare(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        written.assign(x)
        return tf.exp(tf.sin(x)), tf.cos(x)

    def choose(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cond(x > 0.0, lambda: (x, x), rarely(lambda: rare(x)))

    graph = tf.function(choose, autograph=False)
    library = graph.get_concrete_function(tf.TensorSpec([])).graph.as_graph_def().library
    branch = next(
        f
        for f in library.function
        if "cond_false" in f.signature.name and f.signature.name.count("cond") == 1
    )
    assert not {"Exp", "Sin", "Cos"} & {node.op for node in branch.node_def}
    for function in (graph, choose, tf.function(choose, autograph=False, jit_compile=True)):
        assert [float(value) for value in function(tf.constant(2.0))] == [2.0, 2.0] and float(
            written
        ) == 0.0
        np.testing.assert_allclose(
            function(tf.constant(-1.0)), [np.exp(np.sin(-1.0)), np.cos(-1.0)], rtol=1e-6
        )
        assert float(written) == -1.0
        written.assign(0.0)


@pytest.fixture
def warnings_of_retraces() -> Iterator[list[str]]:
    """What TensorFlow logs of functions that were traced too often."""
    found = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    yield found
    tf.get_logger().removeHandler(handler)


class Scaled:
    """A method that is compiled anew for each object, and a branch in it."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.compiled = Compiled(self.of)

    def of(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 0.0, lambda: self.factor * x, rarely(lambda: -x))


def test_the_same_method_of_many_objects_is_no_retrace(warnings_of_retraces: list[str]) -> None:
    for factor in range(8):
        assert float(Scaled(float(factor)).compiled(tf.constant(2.0))) == 2.0 * factor
    assert warnings_of_retraces == []


def test_a_function_that_is_retraced_is_named(warnings_of_retraces: list[str]) -> None:
    compiled = Compiled(lambda x: 2.0 * x)
    for size in range(1, 9):
        compiled(tf.ones(size))
    assert compiled.traces == 8
    assert "triggered tf.function retracing" in warnings_of_retraces[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", [gl.Poisson, gl.StudentT])
def test_repeated_fits_warn_of_no_retraces(
    likelihood: type[gl.Likelihood], warnings_of_retraces: list[str]
) -> None:
    X = np.linspace(-1.0, 1.0, 6)[:, None]
    for _ in range(6):
        model = gd.models.LCLGP((X, np.round(2.0 + X)), gpflow.kernels.Matern32(), likelihood())
        gd.fit(model, steps=1, progress=False)
    assert warnings_of_retraces == []


def test_other_errors_arrive_as_they_are() -> None:
    def broken(x: tf.Tensor) -> tf.Tensor:
        raise TypeError(f"no {x.shape.rank} here")

    with pytest.raises(TypeError, match="no 1 here"):
        Compiled(broken)(tf.ones(2))
    with pytest.raises(ZeroDivisionError):
        Compiled(lambda x: x / (1 // 0))(tf.ones(2))


class Branching(gpflow.functions.MeanFunction):
    """A mean function as users write it: Python's `if` on a tensor; `seen` holds the source it was
    traced from.
    """

    def __init__(self, branches: bool) -> None:
        super().__init__()
        self.branches, self.seen = branches, [""]

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        self.seen[0] = inspect.currentframe().f_code.co_filename  # type: ignore[union-attr]
        level = tf.reduce_mean(X, axis=1, keepdims=True)
        if self.branches:
            if tf.reduce_sum(X) > 0.0:
                level = 2.0 * level
        return level


@pytest.mark.exhaustive
@pytest.mark.parametrize("branches", [False, True])
def test_fit_pays_for_autograph_only_where_a_user_needs_it(
    branches: bool, rng: np.random.Generator
) -> None:
    X = rng.uniform(0.1, 1.0, (20, 1))
    bounds = []
    for compile in (True, False):
        mean = Branching(branches)
        basis = gd.bases.CoupledBasis(X[:4].copy())
        model = gd.models.BasisGP(
            gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), basis, mean_function=mean
        )
        sources: list[str] = []  # of the steps: the bound at the end is computed eagerly
        calls = gd.training.Callbacks(
            [lambda *_, mean=mean, sources=sources: sources.append(mean.seen[0])], every=1
        )
        data, options = (X, np.sin(9 * X)), {"steps": 2, "progress": False, "compile": compile}
        bounds.append(gd.fit(model, data, callbacks=calls, **options).history["elbo"])
        assert (sources[-1] == __file__) == (not compile or not branches)
    np.testing.assert_allclose(*bounds, rtol=1e-10)


def _compiled_root(parameter: gpflow.Parameter) -> Compiled:
    """A function with a bijector and a custom gradient, each of which TensorFlow remembers in a
    table of its own.
    """
    return Compiled(lambda x: tf.reduce_sum(cholesky(parameter * x).chol))


def test_graphs_go_with_their_function() -> None:
    """Neither the gradients' registry nor the bijectors' cache keeps one, while functions that are
    still there work on.
    """
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    x, kept, gone = (
        tf.eye(3, dtype=tf.float64),
        _compiled_root(parameter),
        _compiled_root(parameter),
    )
    kept(x)
    graph = weakref.ref(gone.get_concrete_function(x).graph)
    assert graph() is not None
    del gone
    gc.collect()
    assert graph() is None
    with tf.GradientTape() as tape:
        value = kept(x)
    slope = tape.gradient(value, parameter.unconstrained_variable)
    assert np.isclose(float(value), 3.0 * np.sqrt(2.0)) and np.isfinite(float(slope))


def test_graphs_shared_with_others_keep_their_gradients() -> None:
    """The graph of `tfp.math.lbeta`, traced here by the first function, is used by the second after
    the first is gone.
    """
    x = tf.constant(
        [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0], tf.float64
    )  # a shape that nobody else has had
    first = Compiled(lambda x: tf.reduce_sum(tfp.math.lbeta(x, x)))
    first(x)
    del first
    gc.collect()

    @tf.function
    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(tfp.math.lbeta(x, x))
        return tape.gradient(value, x)

    np.testing.assert_allclose(
        slope(x), 2.0 * (tf.math.digamma(x) - tf.math.digamma(2.0 * x)), rtol=1e-12
    )


@pytest.mark.exhaustive
def test_fits_of_one_model_leave_no_graphs() -> None:
    model = CVIGP(
        (np.linspace(0.0, 1.0, 6)[:, None], np.arange(6.0)[:, None] - 2.5),
        gpflow.kernels.Matern32(),
        gl.Gaussian(),
    )
    counts = []
    for _ in range(3):
        gpflow_decoupled.fit(model, steps=1, progress=False)
        gc.collect()
        counts.append(sum(isinstance(one, FuncGraph) for one in gc.get_objects()))
    assert counts[1] == counts[2]


@pytest.mark.parametrize("kind", ["CheckpointError", "DataError", "ModelError", "NumericalError"])
def test_errors_keep_their_class_in_a_users_function(kind: str) -> None:
    """AutoGraph replaces exceptions with constructors that it does not know."""
    made = getattr(errors, kind)

    @tf.function
    def traced(x: tf.Tensor) -> tf.Tensor:
        raise made("x is one; use two.")

    with pytest.raises(made, match="x is one; use two"):
        traced(tf.constant(1.0))
