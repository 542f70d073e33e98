"""Every test starts from the same seeds and from GPflow's default configuration; the short run and
the exhaustive one.

Two markers divide the tests. `exhaustive` is for what repeats others at length (notebooks,
benchmarks, random campaigns): only `--exhaustive` runs it. `costly(keep=2)` is for a test whose
parameter sets each take a second or so: the short run takes `keep` of them, and which ones depends
on the name of the test, so that tests with the same list of models take different models;
`--exhaustive` runs all. Lists whose entries are formulas of their own (distributions, site losses)
have no marker. Every test without a marker belongs to both runs.

TensorFlow is imported in the fixture: the process that hands out tests to the workers then never
loads it, and what it logs when loaded does not end up below pytest's closing line."""

from __future__ import annotations

import functools
import gc
import sys
import typing
from collections.abc import Iterator

import numpy as np
import pytest

from tests.seeds import seed_tensorflow
from tests.selection import left_out

if sys.version_info < (3, 12):
    # Later ones remember what the members of a protocol are, too. TensorFlow asks for them at every
    # nested structure, which takes 7 % of the time of the tests.
    for _name in ("_get_protocol_attrs", "_is_callable_members_only"):
        setattr(typing, _name, functools.lru_cache(maxsize=None)(getattr(typing, _name)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--exhaustive`, which `make test-all` passes."""
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="all tests with all parameters, also the costly ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", "exhaustive: runs with --exhaustive alone")
    config.addinivalue_line(
        "markers", "costly(keep=2): the short run takes `keep` of the parameter sets"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the short run does not take. Tests that were named one by one are all run."""
    if config.getoption("exhaustive") or any("::" in argument for argument in config.args):
        return
    unwanted = left_out(items)
    dropped = {id(item) for item in unwanted}
    config.hook.pytest_deselected(items=unwanted)
    taken = [item for item in items if id(item) not in dropped]
    # those that start processes come first: at the end one worker of pytest would wait for the
    # other
    items[:] = sorted(taken, key=lambda item: "replicas" not in item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def _modules_are_no_garbage() -> None:
    """What importing makes is not looked at again each time that garbage is collected: 8 % of the
    time of the tests.

    Graphs are full of cycles, so that Python collects all the time while they are traced; less
    often saves as much again."""
    import gpflow_decoupled  # noqa: F401

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Seed NumPy and TensorFlow, and undo what a test does to GPflow's configuration."""
    import gpflow

    np.random.seed(0)
    seed_tensorflow(0)
    with gpflow.config.as_context(gpflow.config.Config()):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of random numbers that is the same in every run of a test."""
    return np.random.default_rng(0)
