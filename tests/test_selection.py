"""The short run: what it leaves out, and that it leaves nothing else out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.selection import left_out, places


def _item(name: str, **markers: dict) -> SimpleNamespace:
    found = {marker: SimpleNamespace(kwargs=options) for marker, options in markers.items()}
    return SimpleNamespace(nodeid=name, get_closest_marker=found.get)


def test_tests_without_a_marker_stay() -> None:
    assert (
        left_out([_item("t.py::test_a"), _item("t.py::test_b[1]"), _item("t.py::test_b[2]")]) == []
    )


def test_exhaustive_parameters_go_and_the_others_stay() -> None:
    items = [_item("t.py::test_a[1]"), _item("t.py::test_a[2]", exhaustive={})]
    assert left_out(items) == items[1:]


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_costly_tests_keep_what_they_say(keep: int) -> None:
    items = [_item(f"t.py::test_a[{place}]", costly={"keep": keep}) for place in range(5)]
    assert len(left_out(items)) == max(0, 5 - keep)


def test_every_parameter_set_is_kept_by_some_test_of_a_list() -> None:
    names = [f"t.py::test_{letter}" for letter in "abcdefghijklmnop"]
    assert set.union(*(places(name, 6, 2) for name in names)) == set(range(6))
    assert places("t.py::test_a", 6, 2) == places("another.py::test_a", 6, 2)
