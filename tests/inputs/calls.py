"""How public calls are described: an `Entry`, and functions that make entries of one kind."""

from __future__ import annotations

__all__ = [
    "ALONE",
    "FIT_OPTIONS",
    "KINDS",
    "LATENTS",
    "OPTIONS",
    "PARTS",
    "Entry",
    "bound",
    "build",
    "certificate",
    "fitted",
    "full_model",
    "inputs",
    "method",
    "plot",
    "score",
    "settings",
    "sparse_model",
    "standardized",
    "topic_model",
    "verb",
    "with_size",
]

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gpflow

import gpflow_decoupled as gd
from gpflow_decoupled import models

from .world import (
    BETA,
    DOCUMENTS,
    GAMMA,
    LABELS,
    X,
    Y,
    classifier,
    kernel,
    noise,
    sparse,
)

inputs = X
"""By another name, for calls with an argument X."""
Arguments = dict[str, Any]
"""By name; a function is called for a new value."""


@dataclass(frozen=True)
class Entry:
    """A public call.

    :param call: takes right arguments by name, with one of them replaced.
    :param right: the arguments.
    :param kinds: of the arguments that are made wrong, as `WRONG_VALUES` calls them.
    :param accepted: wrong values in words that this call rightly takes, by argument.
    """

    call: Callable[..., object]
    right: Arguments
    kinds: dict[str, str]
    accepted: dict[str, tuple[str, ...]] = field(default_factory=dict)


PARTS = {"kernel": kernel, "likelihood": noise}
KINDS = {"kernel": "kernel", "likelihood": "likelihood"}
LATENTS = {"kernel": ("other latents",)}
"""Models without data take the number of latents from the kernel."""
ALONE = {**LATENTS, "points": ("other columns",), "inducing_variable": ("other columns",)}
"""One set of points alone says how many columns there are."""
OPTIONS = {
    "mean_function": "mean function",
    "num_latent_gps": "whole number",
    "num_data": "whole number",
}


def sparse_model(kind: type) -> Entry:
    second = "alpha" if kind is models.DVGP else "gamma"
    kinds = {**KINDS, second: "points", "beta": "points", **OPTIONS}
    return Entry(
        lambda **given: kind(**given), {**PARTS, second: GAMMA, "beta": BETA}, kinds, LATENTS
    )


def full_model(kind: Callable, Y: Any, likelihood: Callable, outputs: str, **more: str) -> Entry:
    def call(X: Any, Y: Any, **given: Any) -> object:
        return kind((X, Y), **given)

    right: Arguments = {"X": X, "Y": Y, "likelihood": likelihood}
    kinds = {"X": "paired inputs", "Y": outputs, "likelihood": "likelihood", **more}
    if "kernel" in more:
        right["kernel"] = kernel
    return Entry(call, right, kinds, {"Y": ("twice the columns",)})  # one latent a column


def fitted(model: Any, X: Any, Y: Any, **options: Any) -> object:
    data = None if hasattr(model, "data") else (X, Y)
    return gd.fit(model, data, **{"steps": 1, "progress": False, "compile": False, **options})


FIT_OPTIONS = {
    "steps": "whole number",
    "seconds": "rate",
    "batch_size": "whole number",
    "natural_gradient": "share",
    "hold": "word",
    "negative_precision": "word",
    "precision": "word",
    "mean_solver": "word",
    "learning_rate": "rate",
    "optimizer": "object",
    "schedule": "object",
    "evaluation": "object",
    "callbacks": "object",
    "checkpoint": "object",
    "seed": "whole number or 0",
}


def verb(name: str, make: Callable = sparse, **more: Any) -> Entry:
    """A method of predictions."""
    call = lambda model, Xnew: getattr(model, name)(Xnew, **more)  # noqa: E731
    return Entry(call, {"model": make, "Xnew": X}, {"Xnew": "new inputs"})


def bound(name: str, make: Callable = sparse, Y: Any = Y, outputs: str = "outputs") -> Entry:
    """A method that takes data."""
    call = lambda model, X, Y: getattr(model, name)((X, Y))  # noqa: E731
    right = {"model": make, "X": X, "Y": Y}
    # GPflow's own contract of shapes refuses that before our method is entered
    accepted = {"X": ("rank 3",), "Y": ("rank 3",)} if name == "predict_log_density" else {}
    return Entry(call, right, {"X": "inputs of points", "Y": outputs}, accepted)


def settings(make: Callable[..., object], **kinds: str) -> Entry:
    """Options that are refused where they are passed."""
    return Entry(make, {}, kinds)


def score(call: Callable[..., object], **kinds: str) -> Entry:
    """A function of a classifier and data."""
    right: Arguments = {"model": classifier, "X": X, "Y": LABELS}
    return Entry(call, right, {"X": "paired inputs", "Y": "labels", **kinds})


def plot(name: str) -> Callable[..., object]:
    """A picture, which needs Matplotlib."""

    def call(model: Any, X: Any, Y: Any, **options: Any) -> object:
        from gpflow_decoupled.wrappers import calibration, plots

        return getattr(calibration if name == "plot_calibration" else plots, name)(
            model, (X, Y), **options
        )

    return call


def with_size(model: Any, num_data: Any) -> object:
    model.num_data = num_data
    return model.elbo((X, Y))


def method(rule: Callable[..., Any], make: Callable, *names: str, **kinds: str) -> Entry:
    """A rule with its options and its run on a model, whose options are `names`."""

    def call(model: Any, **options: Any) -> object:
        own = {name: value for name, value in options.items() if name in names}
        return rule(**{name: value for name, value in options.items() if name not in names}).run(
            model, **own
        )

    return Entry(call, {"model": make}, {"model": "model", **kinds})


def standardized(build: Any, X: Any, Y: Any) -> object:
    return gd.Standardized(build, (X, Y))


def build(X: Any, Y: Any) -> object:
    return gpflow.models.SVGP(kernel(), noise(), X[:4])


def topic_model(kind: Callable, **kinds: str) -> Entry:
    def call(documents: Any, **options: Any) -> object:
        return kind(**{"num_topics": 2, "max_passes": 2, **options}).fit(documents)

    return Entry(
        call,
        {"documents": DOCUMENTS},
        {"documents": "documents", "num_topics": "whole number", **kinds},
        {"doc_prior": ("True",)},  # read as an array
    )


def certificate(model: Any, X: Any, Y: Any, **options: Any) -> object:
    return gd.pac_bayes_certificate(model, (X, Y), hyperparameters="fixed", **options)
