"""The ascent in turns: concave problems with one maximum, bounds that never fall, and what it is
refused for.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpflow.utilities import set_trainable
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent
from gpflow_decoupled.optimizers.affine_independent import (
    as_vector,
    climb_in_turns,
    compiled_objective,
    turns_of,
)
from gpflow_decoupled.optimizers.affine_start import climb
from tests.models.affine_independent.affine_problems import logistic_data, toy_model
from tests.reference import affine_model as ref


@pytest.fixture
def problem():
    """A bound as a function of all coordinates, those of (b, L) and of (b, U), and a place that is
    nowhere special.
    """
    X, Y = logistic_data(5, 3)
    model = AffineIndependentGLM((0.3 * X, Y), BernoulliLogit(), intercept=False, structure="lu")
    model.basis.theta.assign([[2.0], [-1.0], [0.5]])
    set_trainable(model.basis.theta, False)
    groups, variables = (
        model.site_groups(),
        [*model.basis.map.trainable_variables, *model.basis.b.trainable_variables],
    )
    function = compiled_objective(lambda: model.bound(groups), variables)
    rng = np.random.default_rng(0)
    x = as_vector(variables) + 0.2 * rng.normal(size=15)
    return function, turns_of(model.basis, variables), x, rng


def moved(x: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """x with other values at some places, but with the signs that the diagonal of L has."""
    other = x.copy()
    other[places] *= rng.uniform(0.3, 2.0, size=len(places))
    return other


@pytest.mark.exhaustive
def test_the_bound_is_concave_in_each_turn_and_not_in_all(problem):
    """(A20): the middle of a line is above the mean of its ends, and on some line in L and U
    together it is not.
    """
    function, turns, x, rng = problem

    def excess(*ends: np.ndarray) -> float:
        left, middle, right = (
            function(point)[0] for point in (ends[0], 0.5 * (ends[0] + ends[1]), ends[1])
        )
        return middle - 0.5 * (left + right)

    for places in turns:
        assert len(places) == 9
        assert min(excess(moved(x, places, rng), moved(x, places, rng)) for _ in range(30)) > -1e-9
    L, U = np.setdiff1d(turns[0], turns[1]), np.setdiff1d(turns[1], turns[0])
    x[U] *= 20.0
    ends = x.copy(), x.copy()
    for end, shares in zip(
        ends, ((0.5, 1.5), (1.5, 0.5))
    ):  # L U is larger in the middle, and so is its prior's loss
        end[L] *= shares[0]
        end[U] *= shares[1]
    assert excess(*ends) < -1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("turn", [0, 1], ids=["b, L", "b, U"])
def test_a_turn_ends_at_the_global_maximum(problem, turn):
    """From two starts of b and L with the same U, and of b and U with the same L."""
    function, turns, x, rng = problem
    places, bounds = turns[turn], []
    for start in (x, moved(x, places, rng)):
        end, found, reason = climb_in_turns(function, start, [places], lambda *_: None, 1e-9, 2000)
        assert reason == "converged" and function(end)[0] == found[-1] > function(start)[0] + 0.01
        bounds.append(found[-1])
        kept = np.setdiff1d(np.arange(15), places)
        assert_allclose(end[kept], x[kept], rtol=0.0)
        assert np.max(np.abs(function(end)[1][places])) < 1e-3
    assert_allclose(*bounds, atol=1e-6)


def test_turns_of_a_concave_function_find_its_maximum():
    rng = np.random.default_rng(1)
    root, best = rng.normal(size=(6, 6)), rng.normal(size=6)
    H = root @ root.T + np.eye(6)
    function = lambda x: (-0.5 * (x - best) @ H @ (x - best), -H @ (x - best))  # noqa: E731
    turns, steps = [np.arange(3), np.arange(2, 6)], []
    end, bounds, reason = climb_in_turns(
        function, np.zeros(6), turns, lambda *step: steps.append(step), 1e-12, 5000
    )
    assert_allclose(end, best, atol=1e-4)
    assert reason == "converged" and np.all(np.diff(bounds) >= 0.0) and len(bounds) % 2 == 0
    assert bounds[-1] == function(end)[0] == max(bound for bound, _ in steps)
    together = climb(function, np.zeros(6), lambda *_: None, 1e-12, 5000)
    assert_allclose(bounds[-1], together[1], atol=1e-9)
    again, _, _ = climb_in_turns(
        function, np.zeros(6), [*turns, turns[1]], lambda *_: None, 1e-12, 5000
    )
    assert_allclose(again, best, atol=1e-4)  # though the last turn of a round gains nothing
    _, bounds, reason = climb_in_turns(function, np.zeros(6), turns, lambda *_: None, 1e-12, 4)
    assert reason == "evaluations done" and len(bounds) == 1


@pytest.mark.exhaustive
def test_the_record_of_a_run():
    """Every turn is at least as high as the one before."""
    model = toy_model("logistic 1", structure="lu")
    result = AffineIndependentAscent(tolerance=1e-2, alternate=True).run(model)
    assert result.gaussian_elbo < result.turns[0] and np.all(np.diff(result.turns) >= 0.0)
    assert len(result.turns) % 3 == 0 and result.converged and result.kept == "affine"
    assert_allclose(result.turns[-1], result.elbo, atol=1e-6)
    assert_allclose(model.elbo(), result.elbo, atol=1e-6)
    stage = result.history["elbo"][result.history["stage"] == 1]
    assert np.all(np.diff(stage) >= 0.0) and np.all(np.isin(result.turns, stage))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["logistic 0", "logistic 1", "robust"])
def test_turns_end_nearly_where_the_joint_ascent_does(name):
    turns, joint = (
        AffineIndependentAscent(alternate=alternate).run(toy_model(name, structure="lu"))
        for alternate in (True, False)
    )
    assert abs(turns.elbo - joint.elbo) < 5e-3 and joint.turns.shape == (0,)
    assert turns.gaussian_elbo < turns.elbo < ref.log_evidence(ref.toy_problems()[name][0])


@pytest.mark.exhaustive
def test_fixed_shapes_and_few_evaluations():
    model = toy_model("robust", structure="lu")
    model.basis.theta.assign([[1.2], [1.4]])
    set_trainable(model.basis.theta, False)
    result = AffineIndependentAscent(alternate=True, keep_better=False).run(model)
    assert len(result.turns) % 2 == 0
    assert_allclose(model.basis.shapes, [[1.2], [1.4]])
    result = AffineIndependentAscent(alternate=True, keep_better=False, max_evaluations=5).run(
        model
    )
    assert result.reason == "evaluations done" and not result.converged and len(result.turns) == 1


def test_another_structure_is_refused_and_nothing_changes():
    X, Y = logistic_data(5, 3)
    model = AffineIndependentGLM((X, Y), BernoulliLogit(), intercept=False)
    before = model.elbo()
    with pytest.raises(
        DataError, match="needs A = L U, and the structure of A is 'full'.*structure='lu'"
    ):
        AffineIndependentAscent(alternate=True).run(model)
    assert model.elbo() == before
