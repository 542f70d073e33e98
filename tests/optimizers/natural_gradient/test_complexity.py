"""Cost, read from the traced graphs: the number of factorisations, and the largest tensor at two
numbers of mean points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl

from gpflow_decoupled.bases import (
    Basis,
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.optimizers.natural_steps import evaluate
from tests.bounds.registry import matern

RNG = np.random.default_rng(0)
BETA, GAMMA = RNG.normal(size=(7, 2)), RNG.normal(size=(512, 2))
X, Y = RNG.normal(size=(11, 2)), RNG.normal(size=(11, 1))
FACTORISATIONS = {  # K_beta; H for the inverse parametrisation; K_beta and C_gamma for SOLVE-GP
    "coupled": (lambda **o: CoupledBasis(BETA), 1),
    "inverse": (lambda **o: DecoupledBasis(GAMMA[:9], BETA, **o), 1),
    "decoupled": (lambda **o: DecoupledBasis(GAMMA[:9], BETA, covariance="coupled", **o), 1),
    "hybrid": (lambda **o: HybridBasis(GAMMA[:9], BETA, **o), 1),
    "orthogonal": (lambda **o: OrthogonalBasis(GAMMA[:9], BETA, **o), 1),
    "solve": (lambda **o: SolveBasis(GAMMA[:9], BETA), 2),
}


def _model(basis: Basis) -> tuple[BasisGP, tuple]:
    model = BasisGP(matern(1.0, 1.0), gl.Gaussian(), basis, num_data=100)
    return model, (tf.constant(X), tf.constant(Y))


def _operations(function: Callable[[], Any]) -> tuple[list[tf.Operation], list[tf.Operation]]:
    """Those of the traced graph, and those in the bodies of its loops and branches."""
    graph = tf.function(function, autograph=False).get_concrete_function().graph
    inner = [
        operation for body in graph._functions.values() for operation in body.graph.get_operations()
    ]
    return graph.get_operations(), inner


def _factorisations(function: Callable[[], Any]) -> tuple[int, int]:
    """How many there are outside and inside of loops and branches."""
    outer, inner = ([operation.type for operation in part] for part in _operations(function))
    return outer.count("Cholesky"), inner.count("Cholesky")


def _largest(function: Callable[[], Any]) -> int:
    """Elements of the largest tensor; a dimension that is not known when tracing counts as an
    error.
    """
    sizes = []
    for operation in sum(_operations(function), []):
        for output in operation.outputs:
            if output.dtype.is_floating and operation.type != "Placeholder":
                assert output.shape.is_fully_defined(), operation
                sizes.append(output.shape.num_elements())
    return max(sizes)


def _everything(model: BasisGP, data: tuple) -> Callable[[], Any]:
    """The bound and all gradients."""
    return lambda: evaluate(model, data, model.trainable_variables)[::4]


def _ok(optimizer, model, data):
    return optimizer.minimize(model, data).ok


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_bound_and_gradient_factorise_once(name):
    build, expected = FACTORISATIONS[name]
    model, data = _model(build(mean_scaling="none"))
    assert _factorisations(_everything(model, data)) == (expected, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["coupled", "hybrid", "orthogonal", "solve"])
def test_natural_gradient_adds_one_factorisation_for_each_gaussian(name):
    """Fewer than GPflow's on the same model. Two more run only when a step is too long: while it is
    halved, and once after.
    """
    build, expected = FACTORISATIONS[name]
    model, data = _model(build(mean_scaling="none"))
    optimizer = NaturalGradient(0.1)  # "damp"; the other policies do not halve a step
    parts = len(model.basis.gaussian_parameters()) // 2
    assert _factorisations(lambda: optimizer.minimize(model, data).ok) == (
        expected + parts,
        2 * parts,
    )
    pairs = [(model.basis.q_mu, model.basis.q_sqrt)]
    theirs = gpflow.optimizers.NaturalGradient(0.1)
    assert (
        _factorisations(lambda: theirs.minimize(lambda: model.training_loss(data), pairs))[0]
        > expected + 1
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", ["gradient", "natural gradient"])
@pytest.mark.parametrize(
    "basis, scaling",
    [
        (DecoupledBasis, "none"),
        (HybridBasis, "none"),
        (OrthogonalBasis, "none"),
        (OrthogonalBasis, "diagonal"),
    ],
)
def test_no_tensor_is_quadratic_in_the_mean_points(basis, scaling, work):
    largest = []
    for size in (64, 512):
        model, data = _model(basis(GAMMA[:size], BETA, mean_scaling=scaling, mean_subsample=5))
        optimizer = NaturalGradient(0.1)
        natural = partial(_ok, optimizer, model, data)
        largest.append(
            _largest(natural if work == "natural gradient" else _everything(model, data))
        )
    assert largest[1] <= 2 * 512 * len(X)
    assert largest[1] <= 8 * largest[0]


@pytest.mark.exhaustive
def test_without_subsampling_the_norm_is_quadratic():
    """What the test above would see."""
    model, data = _model(OrthogonalBasis(GAMMA[:64], BETA, mean_scaling="none"))
    assert _largest(lambda: model.elbo(data)) >= 64**2


@pytest.mark.exhaustive
def test_whitened_coordinates_hold_the_only_quadratic_tensor():
    """Of a step: the frozen factor itself, which a training step reads but does not recompute."""
    basis = OrthogonalBasis(GAMMA[:64], BETA, mean_scaling="whitened", mean_subsample=5)
    model, data = _model(basis)
    big = {
        operation.type
        for operation in _operations(_everything(model, data))[0]
        for output in operation.outputs
        if output.dtype.is_floating and (output.shape.num_elements() or 0) >= 64**2
    }
    assert "ReadVariableOp" in big
    assert not big & {"MatMul", "BatchMatMulV2", "Cholesky", "Exp"}
