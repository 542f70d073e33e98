"""Bounds of the log evidence, and the solves that they need.

- `bounds`: how far each bound is below the exact log evidence at fixed hyperparameters;
- `learning`: the exact log evidence at the hyperparameters that climbing each bound learns;
- `solves`: products of a solve for the exact mean, by preconditioner and noise.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import bounds, learning, solves


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    bounds.add_arguments(parser)
    learning.add_arguments(parser)
    solves.add_arguments(parser)


SUITE = Suite(
    "Bounds of the log evidence",
    {"bounds": bounds.PART, "learning": learning.PART, "solves": solves.PART},
    _add_arguments,
    selecting=("tasks", "noises", "ways"),
)
