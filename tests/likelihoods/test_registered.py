"""A guard that names a likelihood of the package which no table of the tests holds."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

import pytest
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.likelihoods.registry import site_description
from tests.likelihoods.observed_cases import CASES as OBSERVED
from tests.likelihoods.sites.site_cases import CASES as SITES
from tests.likelihoods.test_likelihoods import CASES

Kind = type[gl.Likelihood]
ELSEWHERE: dict[Kind, str] = {
    own.Hinge: "test_hinge.py: it is no normalised density",
    own.RowLikelihood: "test_row_likelihood.py: it is made of another one",
    own.NumberedLikelihood: "test_observed.py: it is abstract",
    own.CensoredLikelihood: "test_observed.py: it is abstract",
    own.CategoricalLogit: "test_categorical_logit.py: a latent function for each class",
}
"""Classes with tests in a file for them alone, and why the shared table cannot hold them."""


def likelihoods_of_the_package() -> set[Kind]:
    """All that its modules define, exported or not."""
    modules = pkgutil.walk_packages(own.__path__, f"{own.__name__}.")
    things = [
        thing
        for module in modules
        for thing in vars(importlib.import_module(module.name)).values()
        if isinstance(thing, type) and issubclass(thing, gl.Likelihood)
    ]
    return {thing for thing in things if thing.__module__.startswith(own.__name__)}


def missing(kinds: Iterable[Kind], covered: Iterable[gl.Likelihood]) -> list[str]:
    """The names of the classes that no covered likelihood has."""
    return sorted(kind.__name__ for kind in set(kinds) - {type(one) for one in covered})


def test_every_likelihood_is_registered() -> None:
    kinds = likelihoods_of_the_package()
    assert len(kinds) >= 7
    covered = [make() for make, *_ in CASES.values()]
    covered += [case.make() for case in OBSERVED.values()]
    assert missing(kinds - set(ELSEWHERE), covered) == [], (
        "add it to CASES of tests/likelihoods/test_likelihoods.py or observed_cases.py"
    )


@pytest.mark.exhaustive
def test_every_site_loss_is_registered() -> None:
    made = [*(make() for make, *_ in CASES.values()), own.Hinge()]
    made += [case.make() for case in OBSERVED.values()]
    with_loss = {type(one) for one in made if site_description(one).loss is not None}
    # its loss is defined by 40 nodes: tests/optimizers/lagrangian/test_classes.py
    with_loss -= {own.Ordinal}
    assert (
        missing(with_loss, [case.make() for case in (*SITES.values(), *OBSERVED.values())]) == []
    ), "add it to CASES of tests/likelihoods/sites/site_cases.py"


def test_the_guard_names_a_likelihood_that_is_not_registered() -> None:
    class NewNoise(gl.Gaussian):
        pass

    assert missing([NewNoise, gl.Gaussian], [gl.Gaussian()]) == ["NewNoise"]
