"""What is known of each likelihood, and that a subclass with another density is another noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow.likelihoods as gl
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Constant
from gpflow.kernels import Matern52

import gpflow_decoupled.likelihoods as own
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import facts
from gpflow_decoupled.likelihoods.parameters import single_noise_variance
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import SiteNNGP


class Known(NamedTuple):
    labels: tuple[str | None, int | None] = None, None
    noise: str | None = None
    scale: bool = False
    number: str | None = None
    entry: bool = True
    tilting: str | None = None
    rate: bool = False


SCALE = Known(noise="scale", scale=True)
BINARY = ("binary", 2)
RATE = Known(rate=True)
TABLE: list[tuple[gl.Likelihood, Known]] = [
    (gl.Gaussian(), Known(noise="variance", scale=True)),
    (gl.Gaussian(scale=0.3), SCALE),
    (gl.StudentT(), SCALE),
    (own.Laplace(), SCALE._replace(tilting="laplace")),
    (own.AsymmetricLaplace(0.2), SCALE),
    (own.CensoredNormal(), SCALE._replace(number="censored")),
    (own.LogNormal(), Known(number="censored")),
    (own.Weibull(), Known(number="censored")),
    (gl.HeteroskedasticTFPConditional(), Known(scale=True, entry=False)),
    (gl.Bernoulli(), Known(BINARY, tilting="floored probit")),
    (gl.Bernoulli(invlink=tf.sigmoid), Known(BINARY)),
    (own.BernoulliLogit(), Known(BINARY)),
    (own.BernoulliProbit(), Known(BINARY, tilting="probit")),
    (own.CategoricalLogit(3), Known(("classes", 3), entry=False, tilting="classes")),
    (gl.MultiClass(3), Known(("classes", 3), entry=False)),
    (gl.Softmax(3), Known(("classes", 3), entry=False)),
    (own.Ordinal([0.0, 1.0]), Known(("grades", 3))),
    (own.Binomial(), Known(number="trials")),
    (own.BetaBinomial(), Known(number="trials")),
    (gl.Poisson(), RATE),
    (gl.Gamma(), RATE),
    (own.ZeroInflatedPoisson(), RATE),
    (own.HurdlePoisson(), RATE),
    (own.NegativeBinomial(), Known()),
    (own.ZeroInflatedNegativeBinomial(), Known()),
    (own.HurdleNegativeBinomial(), Known()),
    (gl.Beta(), Known()),
    (gl.SwitchedLikelihood([gl.Gaussian(), gl.StudentT()]), Known(entry=False)),
]


@pytest.mark.parametrize("likelihood, known", TABLE, ids=lambda one: type(one).__name__)
def test_what_is_known_of_a_likelihood(likelihood: gl.Likelihood, known: Known) -> None:
    found = Known(
        (facts.label_kind(likelihood), facts.num_classes(likelihood)),
        facts.noise_parameter(likelihood),
        facts.has_scale(likelihood),
        facts.own_number(likelihood),
        facts.is_by_entry(likelihood),
        facts.closed_tilting(likelihood, 1.0),
        facts.is_rate(likelihood),
    )
    assert found == known
    halves = facts.closed_tilting(likelihood, 0.5)
    assert halves == (known.tilting if known.tilting in ("laplace", "classes") else None)
    assert facts.is_gaussian(likelihood) == isinstance(likelihood, gl.Gaussian)
    if known.entry:  # with numbers of rows it is the same likelihood
        rows = own.RowLikelihood(likelihood, [known.number] if known.number else [])
        assert facts.base_of(rows) is likelihood
        assert facts.name_of(rows) == type(likelihood).__name__
        assert (facts.has_scale(rows), facts.is_rate(rows)) == (known.scale, known.rate)


class Renamed(gl.Gaussian):
    """Nothing of its own."""


class Heavy(gl.Gaussian):
    def _scalar_log_prob(self, X: Any, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.abs(F - Y) / tf.sqrt(self.variance)


class Louder(gl.Gaussian):
    def _variance(self, X: tf.Tensor) -> tf.Tensor:
        return 2.0 * super()._variance(X)


def test_a_subclass_is_gaussian_while_its_density_is() -> None:
    assert facts.is_gaussian(Renamed()) and not facts.is_gaussian(None)
    X, Y = np.linspace(0.0, 1.0, 5)[:, None], np.arange(5.0)[:, None] - 2.0
    for other in (Heavy(), Louder()):
        assert not facts.is_gaussian(other) and single_noise_variance(other) is None
        assert isinstance(NNGP((X, Y), Matern52(), other, num_neighbours=2), SiteNNGP)
        with pytest.raises(DataError, match="known noise is for a Gaussian"):
            own.RowLikelihood(other, ["noise"])


def test_numbers_of_rows_and_errors_of_predictions() -> None:
    Y = np.array([[2.0, 4.0], [np.nan, 1.0]])
    rows = own.RowLikelihood(gl.Bernoulli(), ["trials"])
    y, numbers = facts.split_rows(rows, Y)
    np.testing.assert_array_equal(y, Y[:, :1])
    np.testing.assert_array_equal(numbers["trials"], Y[:, 1:])
    p = np.array([[0.6], [0.9]])
    np.testing.assert_allclose(facts.prediction_errors(rows, p, Y), [[0.1], [0.0]])
    np.testing.assert_allclose(facts.prediction_errors(own.Binomial(), p[:1], Y[:1]), [[0.1]])
    np.testing.assert_allclose(facts.prediction_errors(gl.Gaussian(), p, 0.0 * p), p)
    # classes, also with weights of the rows
    classes, P = own.CategoricalLogit(3), np.array([[0.2, 0.7, 0.1]])
    weighted = own.RowLikelihood(classes, ["weight"])
    for likelihood, label in ((classes, [[1.0]]), (weighted, [[1.0, 2.5]])):
        found = facts.prediction_errors(likelihood, P, np.array(label))
        np.testing.assert_allclose(found, [[0.2, -0.3, 0.1]])
    tasks = gl.SwitchedLikelihood([gl.Gaussian(), gl.StudentT()])
    means, labels = np.array([[1.0, 5.0], [1.0, 5.0]]), np.array([[0.5, 0.0], [4.0, 1.0]])
    np.testing.assert_allclose(facts.prediction_errors(tasks, means, labels), [[0.5], [1.0]])


def test_functions_of_the_inputs_stay_the_noise() -> None:
    likelihood = gl.Gaussian(variance=Constant(0.3))
    assert facts.is_gaussian(likelihood) and facts.noise_parameter(likelihood) == "variance"
    assert single_noise_variance(likelihood) is None


def test_what_a_user_defined() -> None:
    assert facts.defined_by_user(Heavy()) and not facts.defined_by_user(own.Laplace())
    assert facts.defined_by_user(Heavy(), "_scalar_log_prob")
    assert not facts.defined_by_user(Heavy(), "_variational_expectations")
