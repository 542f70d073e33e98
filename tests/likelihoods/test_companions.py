"""A row's result does not depend on the rows beside it in a call: every predict verb, every
likelihood.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.likelihoods import observation_moments
from tests.likelihoods.observed_cases import CASES as OBSERVED
from tests.likelihoods.test_likelihoods import CASES
from tests.models.builders import LIKELIHOODS

MAKERS = {
    **{name: (make, latents) for name, (make, latents, _) in LIKELIHOODS.items()},
    "Hinge": (own.Hinge, 1),
    **{type(make()).__name__: (make, 1) for make, *_ in CASES.values()},
    **{type(case.make()).__name__: (case.make, 1) for case in OBSERVED.values()},
}
SAMPLED = ("Softmax",)
"""GPflow's own draws differ from call to call."""
BESIDE = {  # mean and variance of the row beside
    "wide": (0.0, 1e6),
    "wider": (3.0, 1e10),
    "narrow": (0.0, 1e-12),
    "far": (-1e5, 1.0),
    "NaN": (np.nan, np.nan),
}


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", [name for name in MAKERS if name not in SAMPLED])
def test_a_row_alone_and_beside_another(name: str) -> None:
    make, latents = MAKERS[name]
    likelihood = make()
    numbered = isinstance(likelihood, own.NumberedLikelihood)
    columns = 2 if name == "Switched" or numbered else likelihood.observation_dim or 1
    X, Y = np.zeros((2, 2)), np.ones((2, columns))
    if name == "Beta":
        Y = 0.5 * Y
    rows = np.linspace(-0.5, 0.8, latents), np.linspace(0.4, 1.5, latents)

    def verbs(mean: np.ndarray, variance: np.ndarray) -> list[np.ndarray]:
        n = len(mean)
        found = [
            likelihood.predict_log_density(X[:n], mean, variance, Y[:n]),
            likelihood.variational_expectations(X[:n], mean, variance, Y[:n]),
        ]
        if name != "Switched":
            found += observation_moments(likelihood, X[:n], mean, variance)
        return [np.asarray(one) for one in found]

    alone = verbs(*(row[None] for row in rows))
    assert all(np.all(np.isfinite(one)) for one in alone)
    for beside in BESIDE.values():
        pair = verbs(*(np.stack([np.full(latents, b), row]) for b, row in zip(beside, rows)))
        for one, other in zip(alone, pair):
            assert_allclose(other[-1], one[-1], rtol=1e-9, atol=1e-12)
