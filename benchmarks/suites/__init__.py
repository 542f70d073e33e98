"""The suites, a package each: what they measure, their options, and their sections of the report.

A package NAME has an object `SUITE` in its `__init__`, which `harness.runner` runs. To add a suite,
write such a package, name it in `SUITES` below, and give it a size of seconds in `ci.TINY`, at
which the tests run it."""

from __future__ import annotations

__all__ = ["SUITES"]

SUITES = {
    "ci": "every suite on embedded data, in minutes",
    "rows": "what `build` gives of few rows and of many, with no option",
    "steps": "milliseconds and memory of a training step, and how they scale",
    "regression": "test errors and log densities for seconds of training",
    "classification": "Table 2 of the orthogonal paper: accuracy, log loss, average ranks",
    "full_gp": "full-GP classification: seconds to the best bound",
    "labels": "a full GP with labels, hyperparameters learned, beside other libraries",
    "rivals": "CVI, LCL, Opper, EP and Laplace on one full GP, beside NUTS",
    "glm": "Bayesian logistic regression: seconds and memory to the optimum",
    "lagrangian": "decoupled variational Gaussian inference",
    "affine": "skewed and heavy-tailed posteriors",
    "evidence": "bounds of the log evidence: nats per row short of the exact one",
    "sparse": "VFE, FITC and DTC on one regression",
    "replicas": "several workers: seconds, bytes and memory, and what more of them would gain",
}
"""Name, which is that of a package here, and what it measures."""
