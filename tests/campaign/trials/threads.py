"""Fits and predictions in several threads at once: each as if it were alone."""

from __future__ import annotations

__all__ = ["PART"]

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gpflow_decoupled as gd

from ..outcome import Case, Outcome, Part
from ..problems import Problem, data_of, draw_problem
from ..trial import refused

THREADS = 3
SHARED = ("predict_f", "predict_y")


def run(case: Case) -> Outcome:
    """Three fits at once, or one model asked by three threads."""
    rng, shared = case.generator(), case.number % 2 == 1
    compile = case.number % 4 >= 2
    problems = [draw_problem(rng, moderate=True, rows=12) for _ in range(1 if shared else THREADS)]
    for problem in problems:
        problem.likelihood, problem.data = (
            "Gaussian",
            (problem.data[0], problem.data[0][:, :1] ** 2),
        )
        problem.latents = 1
    what = (
        "one model asked by three threads"
        if shared
        else f"three fits at once{', compiled' if compile else ''}"
    )
    outcome = Outcome(f"{what}: {'; '.join(problem.title for problem in problems)}")
    try:
        expected = [_predictions(problem, compile and not shared) for problem in problems]
        if shared:
            model = problems[0].build()
            gd.fit(model, data_of(model, problems[0].data), steps=3, progress=False, compile=False)
            ask = lambda verb: [  # noqa: E731
                np.asarray(part) for part in getattr(model, verb)(problems[0].data[0])
            ]  # noqa: E731
            alone = [ask(verb) for verb in SHARED * THREADS]
            with ThreadPoolExecutor(THREADS) as pool:
                found = list(pool.map(ask, SHARED * THREADS))
        else:
            alone = expected
            with ThreadPoolExecutor(THREADS) as pool:
                found = list(pool.map(lambda problem: _predictions(problem, compile), problems))
    except Exception as error:
        return refused(outcome.title, error)
    for number, (first, second) in enumerate(zip(alone, found)):
        if not all(
            np.allclose(one, other, rtol=1e-10, atol=1e-12) for one, other in zip(first, second)
        ):
            outcome.complaints.append(f"thread {number} has another result than it has alone")
    return outcome


def _predictions(problem: Problem, compile: bool) -> list[np.ndarray]:
    model = problem.build()
    gd.fit(model, data_of(model, problem.data), steps=3, progress=False, compile=compile)
    return [np.asarray(part) for part in model.predict_f(problem.data[0])]


PART = Part("threads", "fits and predictions in three threads at once", 16, run)
