"""Selection by certificate: each at delta / J, the least bound wins, and what is drawn of it."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_decoupled.certificates import (
    CertifiedSelection,
    pac_bayes_certificate,
    select_by_certificate,
)
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, SparseCVIGP

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (400, 1))
Y = (RNG.uniform(size=(400, 1)) < 1.0 / (1.0 + np.exp(-6.0 * np.sin(X)))).astype(int)
DATA, TEST = (X[:300], Y[:300]), (X[300:], Y[300:])
SCALES = [0.02, 1.0, 60.0]
"""Too short to generalise, right, and too long to fit."""


def _build(lengthscale: float) -> CVIGP:
    """With sites of a regression on the labels: near enough to the best ones."""
    model = CVIGP(DATA, gpflow.kernels.SquaredExponential(4.0, lengthscale), BernoulliLogit())
    model.basis.nu.assign(DATA[1] - 0.5)
    model.basis.tau.assign(np.full(DATA[1].shape, 0.25))
    return model


@pytest.fixture(scope="module")
def selection() -> CertifiedSelection:
    return select_by_certificate(_build, SCALES, DATA, 0.05, test=TEST)


@pytest.mark.exhaustive
def test_the_least_bound_wins(selection: CertifiedSelection) -> None:
    alone = [
        pac_bayes_certificate(_build(one), DATA, 0.05 / 3, hyperparameters="fixed").bound
        for one in SCALES
    ]
    assert [one.bound for one in selection.certificates] == alone
    assert selection.best == 1 == int(np.argmin(alone)) and selection.certificate.settings == 3
    assert float(selection.model.kernel.lengthscales.numpy()) == pytest.approx(1.0)
    assert np.argmin([one.gibbs for one in selection.test_errors]) == 1
    assert all(
        one.bound > held.gibbs for one, held in zip(selection.certificates, selection.test_errors)
    )
    assert selection.log_evidence[1] == pytest.approx(float(_build(1.0).elbo()))
    table = str(selection).splitlines()
    assert len(table) == 4 and [line[0] for line in table[1:]] == [" ", "*", " "]


def test_models_that_own_no_data_and_integer_labels() -> None:
    def build(variance: float) -> SparseCVIGP:
        return SparseCVIGP(gpflow.kernels.Matern52(variance), BernoulliLogit(), X[:5], num_data=300)

    selection = select_by_certificate(build, (1.0, 4.0), DATA)
    alone = pac_bayes_certificate(build(1.0), DATA, 0.05 / 2, hyperparameters="fixed")
    assert selection.certificates[0].bound == alone.bound, "each at delta / J"
    assert (
        selection.test_errors == ()
        and np.all(np.isfinite(selection.log_evidence))
        and selection.best == 0
    )
    with pytest.raises(DataError, match="settings is empty; name at least one"):
        select_by_certificate(build, [], DATA)
