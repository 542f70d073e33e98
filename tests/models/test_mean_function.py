"""What is no mean function, or one for other inputs or outputs, is refused where the model is
built.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import CVIGP, LCLGP, ODVGP, SparseCVIGP

X = np.random.default_rng(0).uniform(size=(8, 2))
PARTS = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
BUILDS = {
    "ODVGP": lambda mean: ODVGP(*PARTS, X[4:], X[:4], mean_function=mean),
    "SparseCVIGP": lambda mean: SparseCVIGP(*PARTS, X[:4], mean_function=mean),
    "CVIGP": lambda mean: CVIGP((X, X[:, :1]), *PARTS, mean_function=mean),
    "LCLGP": lambda mean: LCLGP((X, X[:, :1]), *PARTS, mean_function=mean),
}
BAD = {
    "a number": (
        1.0,
        (
            r"mean_function is a float; pass an instance of gpflow.functions, for example"
            r" .*Constant\(\)"
        ),
    ),
    "a kernel": (
        gpflow.kernels.Matern52(),
        "mean_function is a Matern52; pass an instance of gpflow.functions",
    ),
    "a class": (
        gpflow.functions.Constant,
        r"mean_function is the class Constant itself; pass an instance, Constant\(\)",
    ),
    "other inputs": (
        gpflow.functions.Linear(np.ones((5, 1))),
        (
            "mean_function Linear cannot be evaluated at inputs of 2 columns, as the model has:"
            " give it parameters of that"
        ),
    ),
    "other outputs": (
        gpflow.functions.Linear(np.ones((2, 3))),
        (
            r"mean_function Linear gives values of shape \[2, 3\] for two inputs, and the model has"
            r" 1 outputs; make it return"
        ),
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("bad", BAD)
def test_other_mean_functions_are_refused(name: str, bad: str) -> None:
    mean, message = BAD[bad]
    with pytest.raises(DataError, match=message):
        BUILDS[name](mean)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", BUILDS)
def test_functions_of_every_form_are_taken(name: str) -> None:
    for mean in (
        None,
        gpflow.functions.Constant(2.0),
        gpflow.functions.Linear(np.ones((2, 1))),
        lambda X: X[:, :1],
    ):
        mean_at = BUILDS[name](mean).predict_f(X[:3])[0]
        assert mean_at.shape == (3, 1)
