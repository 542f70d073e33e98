"""The parts of the campaign; each module declares one as `PART`.

The modules are imported when their part is run: importing this package does not import TensorFlow.
"""

from __future__ import annotations

__all__ = ["NAMES", "part"]

from importlib import import_module

from ..outcome import Part

NAMES = (
    "problems",
    "climbs",
    "invariants",
    "evidence_bounds",
    "kills",
    "many_fits",
    "threads",
)
"""In the order of the table."""


def part(name: str) -> Part:
    """The part of this name."""
    found = import_module(f".{name}", __name__).PART
    assert isinstance(found, Part)
    return found
