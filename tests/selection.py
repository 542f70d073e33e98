"""Which tests the short run takes; see `tests/conftest.py` for the markers."""

from __future__ import annotations

import zlib
from collections import defaultdict

import pytest


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items, of all that were collected, that only the exhaustive run takes."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    chosen = []
    for item in items:
        if item.get_closest_marker("exhaustive") is not None:
            chosen.append(item)
        elif item.get_closest_marker("costly") is not None:
            groups[item.nodeid.split("[")[0]].append(item)
    for name, group in groups.items():
        taken = places(
            name, len(group), group[0].get_closest_marker("costly").kwargs.get("keep", 2)
        )
        chosen += [item for place, item in enumerate(group) if place not in taken]
    return chosen


def places(name: str, count: int, keep: int) -> set[int]:
    """Which of `count` parameter sets a test keeps: evenly spread, from a start that depends on the
    test's own name.
    """
    first = zlib.crc32(name.rsplit("::", 1)[-1].encode())
    keep = min(keep, count)
    return {(first + place * count // keep) % count for place in range(keep)}
