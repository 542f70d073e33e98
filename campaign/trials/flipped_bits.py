"""Files of models with one bit flipped: each is refused with a `DataError`, or gives the model."""

from __future__ import annotations

__all__ = ["PART"]

import tempfile
import warnings
from pathlib import Path

import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError

from ..outcome import Case, Outcome, Part
from ..problems import draw_problem
from ..problems.models import LOCAL, MODELS

BITS = 100
"""Flipped in each case, one at a time; 100 cases are the 10,000 of the report."""


def run(case: Case) -> Outcome:
    """One model, and many damaged copies of its file."""
    rng = case.generator()
    names = [*MODELS, *LOCAL]
    problem = draw_problem(
        rng, moderate=True, gaussian=True, rows=8, model=names[case.number % len(names)]
    )
    outcome = Outcome(f"flipped bits: {problem.title}")
    model, X = problem.build(), problem.data[0][:3]
    expected = np.asarray(model.predict_f(X)[0])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "model.zip"
        gd.save(model, file)
        whole = file.read_bytes()
        for place in rng.choice(8 * len(whole), BITS, replace=False):
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << place % 8
            file.write_bytes(damaged)
            try:
                found = np.asarray(gd.load(file).predict_f(X)[0])
            except DataError:
                continue
            except Exception as error:
                outcome.complaints.append(f"bit {place}: {type(error).__name__}: {error}")
                continue
            if not np.array_equal(found, expected):
                outcome.complaints.append(f"bit {place}: another model was loaded")
    return outcome


PART = Part("flipped_bits", f"{BITS} files of a model with one flipped bit", 100, run)
