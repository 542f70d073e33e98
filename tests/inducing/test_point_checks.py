"""Each refusal names the array, what is wrong, and the fix."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.inducing import check_disjoint, check_inducing
from gpflow_decoupled.inducing.variables import first_equal_row, rows_in

GOOD = np.arange(6.0).reshape(3, 2)
KINDS = [np.float32, tf.constant, tf.Variable, gpflow.Parameter, np.ndarray.tolist]
SAME = [GOOD, *(kind(GOOD) for kind in KINDS)]


@pytest.mark.parametrize("Z", SAME, ids=lambda Z: type(Z).__name__)
def test_good_points_pass(Z) -> None:
    assert check_inducing(Z, "beta", num_dims=2) is None


BAD = [
    (np.arange(3.0), {}, r"beta has shape \[3\], but must be \[M, D\]; use beta\[:, None\]"),
    (np.zeros((2, 3, 1)), {}, r"beta has shape \[2, 3, 1\], but must be \[M, D\]\.$"),
    (np.zeros((0, 2)), {}, r"beta is empty \(shape \[0, 2\]\)"),
    (np.zeros((2, 0)), {}, r"beta is empty \(shape \[2, 0\]\)"),
    (
        [[0.0, 1.0], [np.nan, 1.0]],
        {},
        "beta has NaN or infinite values in 1 of 2 rows, row 1 first: remove",
    ),
    (
        [[0.0, np.inf], [2.0, 1.0]],
        {},
        "beta has NaN or infinite values in 1 of 2 rows, row 0 first: remove",
    ),
    (GOOD, {"num_dims": 3}, "beta has 2 columns, the inputs X have 3: use the columns of X"),
    (
        GOOD.astype(np.float32),
        {"dtype": np.float64},
        r"beta is float32 where float64 is.*astype\('float64'\)",
    ),
    (
        GOOD[[0, 1, 2, 1]],
        {},
        "beta has 1 duplicate rows: row 3 equals row 1.*distinct: use numpy.unique",
    ),
    (np.array([["a"]]), {}, "beta holds string values; encode them as numbers"),
]


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("Z, options, message", BAD)
def test_bad_points_are_refused(Z, options: dict, message: str, as_tensor: bool) -> None:
    with pytest.raises(DataError, match=message):
        check_inducing(tf.constant(Z) if as_tensor else Z, "beta", **options)


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"beta is ragged: give all rows the same length; pass a matrix"
    ):
        check_inducing([[1.0], [1.0, 2.0]], "beta")


def test_lists_are_not_rounded_to_float32() -> None:
    check_inducing([[0.1], [0.1 + 1e-12]], "beta", dtype=np.float64)


def test_symbolic_tensors_are_checked_by_shape_only() -> None:
    @tf.function(autograph=False)
    def inside(Z: tf.Tensor, num_dims: int) -> tf.Tensor:
        check_inducing(Z, "beta", num_dims)
        check_disjoint(Z, Z)
        return Z

    inside(tf.zeros([2, 3]), 3)  # duplicates cannot be seen
    with pytest.raises(DataError, match="beta has 3 columns"):
        inside(tf.zeros([2, 3]), 2)
    inside.get_concrete_function(tf.TensorSpec(None), 2)  # not even the rank is known


def test_first_equal_row(rng: np.random.Generator) -> None:
    rows = rng.integers(0, 3, (200, 3)).astype(float)
    rows[rng.random(rows.shape) < 0.2] *= -1  # -0.0 equals 0.0
    expected = [next(j for j in range(200) if np.array_equal(rows[j], row)) for row in rows]
    np.testing.assert_array_equal(first_equal_row(rows), expected)
    np.testing.assert_array_equal(
        rows_in(rows, rows[:5]),
        [any(np.array_equal(row, other) for other in rows[:5]) for row in rows],
    )


def test_disjoint_sets_pass_silently() -> None:
    check_disjoint(GOOD + 0.5, GOOD)


def test_some_common_rows_warn() -> None:
    gamma = np.concatenate([GOOD + 0.5, GOOD[1:]])
    with pytest.warns(
        UserWarning, match=r"2 of the 5 rows of gamma are also rows.*given=beta"
    ) as record:
        check_disjoint(gamma, tf.Variable(GOOD))
    assert record[0].filename == __file__


def test_gamma_inside_beta_is_refused() -> None:
    with pytest.raises(DataError, match=r"All 2 rows of gamma are also rows of beta.*given=beta\)"):
        check_disjoint(GOOD[:2], GOOD)


def test_different_widths_are_refused() -> None:
    with pytest.raises(DataError, match=r"gamma has shape \[3, 1\] and beta \[3, 2\]"):
        check_disjoint(GOOD[:, :1], GOOD)
