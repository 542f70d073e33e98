"""Whatever array is passed as data: a `DataError` that says what to change, or a finite bound.
Hypothesis finds the least.
"""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.models import CVIGP
from tests.campaign.trial import complaint_about

KINDS = st.sampled_from(["f8", "f4", "f2", "i8", "u1", "?", "c16", "U3", "M8[s]", "O"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def any_array(draw: st.DrawFn) -> np.ndarray:
    """An array of any type and shape, with entries of any value."""
    kind, shape = draw(KINDS), draw(SHAPES)
    if kind == "O":
        return np.full(shape, draw(st.sampled_from([None, "a", 1.0, 2])), object)
    return draw(arrays.arrays(kind, shape))


@pytest.mark.exhaustive
@settings(derandomize=True, deadline=None, max_examples=100)
@given(X=any_array(), Y=any_array())
def test_any_pair_of_arrays_is_refused_or_has_a_bound(X: np.ndarray, Y: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = CVIGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian())
            bound = float(model.elbo())
        except (DataError, NumericalError) as error:
            assert complaint_about(error) == ""
            return
    assert X.dtype == np.float64 and X.ndim == 2 and len(X) == len(Y)
    assert (
        np.isfinite(bound) or np.max(np.abs(Y.astype(float))) > 1e100
    )  # whose squares are beyond the range of floats


@pytest.mark.exhaustive
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    X=arrays.arrays(
        "f8",
        st.tuples(st.integers(1, 6), st.integers(1, 2)),
        elements=st.floats(-1e6, 1e6, width=64),
    ),
    scale=st.floats(1e-6, 1e6),
)
def test_finite_data_have_a_finite_bound(X: np.ndarray, scale: float) -> None:
    """Duplicates, zeros and rows close to each other among them: Hypothesis likes those."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CVIGP(
            (X, scale * np.ones((len(X), 1))),
            gpflow.kernels.Matern52(),
            gpflow.likelihoods.Gaussian(),
        )
        assert np.isfinite(model.elbo())
        mean, variance = model.predict_f(X)
    assert np.all(np.isfinite(mean)) and np.all(variance >= 0.0)
