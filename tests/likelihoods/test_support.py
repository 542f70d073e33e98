"""The support of each likelihood of GPflow: what is accepted, what is refused and how, how many
columns.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from gpflow import likelihoods as gl

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import CategoricalLogit, check_labels, observation_columns

BINS = np.array([0.5, 1.5, 2.5])  # four bins

SUPPORTS = {
    gl.Bernoulli: (gl.Bernoulli(), [0, 1], [0.5, -1, 2], "0 or 1"),
    gl.Poisson: (gl.Poisson(), [0, 1, 250], [-1, 0.5], "counts 0, 1, 2, ..."),
    gl.MultiClass: (gl.MultiClass(3), [0, 1, 2], [-1, 3, 1.5], "whole numbers 0 to 2"),
    gl.Softmax: (gl.Softmax(4), [0, 3], [4, -1, 0.1], "whole numbers 0 to 3"),
    gl.Ordinal: (gl.Ordinal(BINS), [0, 3], [4, -1, 0.1], "whole numbers 0 to 3"),
    gl.Exponential: (gl.Exponential(), [0, 0.1, 9], [-0.1], "numbers of at least 0"),
    gl.Gamma: (gl.Gamma(), [0.1, 9], [0, -0.1], "numbers above 0"),
    gl.Beta: (gl.Beta(), [0.1, 0.9], [0, 1, -0.1], "numbers strictly between 0 and 1"),
    gl.Gaussian: (gl.Gaussian(), [-1e9, 0, 1e9], [], ""),
    gl.StudentT: (gl.StudentT(), [-1e9, 0, 1e9], [], ""),
    gl.HeteroskedasticTFPConditional: (gl.HeteroskedasticTFPConditional(), [-1e9, 0, 1e9], [], ""),
    gl.GaussianMC: (gl.GaussianMC(), [-1e9, 0, 1e9], [], ""),
}
OTHERWISE = {gl.SwitchedLikelihood}  # by its parts: below


@pytest.mark.parametrize(
    "likelihood, inside, outside, words", SUPPORTS.values(), ids=lambda value: type(value).__name__
)
def test_support(likelihood: gl.Likelihood, inside: list, outside: list, words: str) -> None:
    check_labels(likelihood, np.array(inside, float)[:, None])
    for value in outside:
        Y = np.array([inside[0], value, value], float)[:, None]
        with pytest.raises(DataError) as info:
            check_labels(likelihood, Y)
        assert (
            str(info.value)
            == f"Y[1, 0] = {value:g} is outside the support of {type(likelihood).__name__}, which"
            f" takes {words}; recode Y (2 entries are outside)."
        )


def test_every_likelihood_of_gpflow_has_a_case() -> None:
    """A likelihood that GPflow adds must be given a support, or a place among those that accept all
    numbers.
    """
    kinds = {
        kind
        for _, kind in inspect.getmembers(gl, inspect.isclass)
        if issubclass(kind, gl.Likelihood)
        and not inspect.isabstract(kind)
        and kind.__module__.startswith("gpflow.")
    }
    bases = {gl.Likelihood, gl.ScalarLikelihood, gl.MonteCarloLikelihood, gl.QuadratureLikelihood}
    bases |= {gl.MultiLatentLikelihood, gl.MultiLatentTFPConditional}
    assert kinds - bases - OTHERWISE == set(SUPPORTS)


def test_the_column_is_named_too() -> None:
    with pytest.raises(DataError, match=r"Y\[0, 1\] = 2 is outside .*\(1 entries"):
        check_labels(gl.Bernoulli(), np.array([[0.0, 2.0], [1.0, 1.0]]))


def test_switched_likelihood_checks_each_row_by_its_own_likelihood() -> None:
    likelihood = gl.SwitchedLikelihood([gl.Gaussian(), gl.Bernoulli()])
    check_labels(likelihood, np.array([[-3.5, 0], [1, 1], [0, 1]], float))
    check_labels(likelihood, np.array([[-3.5, 0]], float))  # no row of the other
    with pytest.raises(DataError, match="= -3.5 is outside the support of Bernoulli"):
        check_labels(likelihood, np.array([[-3.5, 1]], float))
    with pytest.raises(
        DataError,
        match=(
            "last column of Y says which likelihood a row belongs to; it must consist of whole"
            " numbers 0 to 1"
        ),
    ):
        check_labels(likelihood, np.array([[1, 2]], float))


@pytest.mark.parametrize("kind", [np.int64, np.uint8, bool])
def test_integers_are_checked_as_numbers(kind: type) -> None:
    check_labels(gl.Bernoulli(), np.array([[0], [1]], kind))
    if kind is not bool:
        with pytest.raises(DataError, match="= 3 is outside"):
            check_labels(gl.Bernoulli(), np.array([[0], [3]], kind))


def test_columns_of_Y() -> None:
    assert observation_columns(gl.Gaussian(), 3) == 3
    assert observation_columns(gl.Bernoulli(), 1) == 1
    assert observation_columns(gl.MultiClass(5), 5) == 1
    assert observation_columns(gl.Softmax(5), 5) == 1
    assert observation_columns(CategoricalLogit(5), 5) == 1
    assert observation_columns(gl.HeteroskedasticTFPConditional(), 2) == 1
    assert observation_columns(gl.SwitchedLikelihood([gl.Gaussian()]), 1) == 2
