"""The suites, a package each: what they measure, their options, and their sections of the report.

A package NAME has an object `SUITE` in its `__init__`, which `harness.runner` runs. To add a suite,
write such a package, name it in `SUITES` below, and give it a size of seconds in `ci.TINY`, at
which the tests run it."""

from __future__ import annotations

__all__ = ["SUITES"]

SUITES = {
    "ci": "every suite on embedded data, in minutes",
    "steps": "milliseconds and memory of a training step, and how they scale",
    "startup": "seconds to the import and to the first training step",
    "regression": "test errors and log densities for seconds of training",
    "convergence": "gap to the optimum at fixed hyperparameters",
    "classification": "Table 2 of the orthogonal paper: accuracy, log loss, average ranks",
    "full_gp": "full-GP classification: seconds to the best bound",
    "rivals": "CVI, LCL, Opper, EP and Laplace on one full GP, beside NUTS",
    "glm": "Bayesian logistic regression: seconds and memory to the optimum",
    "policies": "what each policy for negative precisions does",
    "lagrangian": "decoupled variational Gaussian inference",
    "affine": "skewed and heavy-tailed posteriors",
    "topics": "topic models on held-out words",
    "sparse": "VFE, FITC and DTC on one regression",
    "certificates": "PAC-Bayes certificates beside held-out errors",
    "replicas": "several workers: seconds, bytes and memory, and what more of them would gain",
}
"""Name, which is that of a package here, and what it measures."""
