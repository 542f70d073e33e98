"""A guard that names an optimizer which users cannot find, or which no test runs."""

from __future__ import annotations

from pathlib import Path

from gpflow_decoupled import optimizers

TESTS = "\n".join(
    path.read_text(encoding="utf-8")
    for path in Path(__file__).parents[1].rglob("test_*.py")
    if path != Path(__file__)
)


def verbs(thing: object) -> set[str]:
    """The verbs of an optimizer that a thing has; none for results and settings."""
    return {verb for verb in ("minimize", "run", "sweep") if callable(getattr(thing, verb, None))}


def missing(names: list[str], text: str, mark: str) -> list[str]:
    """The names that a text does not have, each written as the mark says."""
    return [name for name in names if mark.format(name) not in text]


OPTIMIZERS = [name for name in optimizers.__all__ if verbs(getattr(optimizers, name))]


def test_every_optimizer_is_in_the_table_of_verbs() -> None:
    assert len(OPTIMIZERS) > 12
    assert missing(OPTIMIZERS, str(optimizers.__doc__), "`{}`") == [], (
        "add it to the table in the docstring of optimizers/__init__.py"
    )


def test_every_optimizer_is_run_by_a_test() -> None:
    assert missing(OPTIMIZERS, TESTS, "{}(") == [], "add its tests to tests/optimizers/<method>/"


def test_the_guard_names_an_optimizer_that_is_not_registered() -> None:
    assert verbs(optimizers.NaturalGradient) and not verbs(dict)
    assert missing(["NewSteps", "NaturalGradient"], "| `NaturalGradient` |", "`{}`") == ["NewSteps"]
