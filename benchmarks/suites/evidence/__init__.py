"""Bounds of the log evidence, and the solves that they need.

- `bounds`: how far each bound is below the exact log evidence at fixed hyperparameters;
- `solves`: products of a solve for the exact mean, by preconditioner and noise.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import bounds, solves


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    bounds.add_arguments(parser)
    solves.add_arguments(parser)


SUITE = Suite(
    "Bounds of the log evidence",
    {"bounds": bounds.PART, "solves": solves.PART},
    _add_arguments,
    selecting=("tasks", "noises"),
)
