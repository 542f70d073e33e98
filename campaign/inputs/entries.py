"""Public calls, the arguments that they take, and of what kind each is."""

from __future__ import annotations

__all__ = ["ENTRIES", "Entry"]

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gpflow

import gpflow_decoupled as gd
from gpflow_decoupled import certificates, inducing, models, optimizers, pathwise, topics, training

from .world import (
    BETA,
    COUNTS,
    DOCUMENTS,
    GAMMA,
    LABELS,
    X,
    Y,
    classifier,
    dual,
    graph,
    kernel,
    linear,
    noise,
    sparse,
)

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


_PARTS = {"kernel": kernel, "likelihood": noise}
_KINDS = {"kernel": "kernel", "likelihood": "likelihood"}
_LATENTS = {"kernel": ("other latents",)}
"""Models without data take the number of latents from the kernel."""
_ALONE = {**_LATENTS, "points": ("other columns",), "inducing_variable": ("other columns",)}
"""One set of points alone says how many columns there are."""
_OPTIONS = {
    "mean_function": "mean function",
    "num_latent_gps": "whole number",
    "num_data": "whole number",
}


def _sparse_model(kind: type) -> Entry:
    second = "alpha" if kind is models.DVGP else "gamma"
    kinds = {**_KINDS, second: "points", "beta": "points", **_OPTIONS}
    return Entry(
        lambda **given: kind(**given), {**_PARTS, second: GAMMA, "beta": BETA}, kinds, _LATENTS
    )


def _full_model(kind: Callable, Y: Any, likelihood: Callable, outputs: str, **more: str) -> Entry:
    def call(X: Any, Y: Any, **given: Any) -> object:
        return kind((X, Y), **given)

    right: Arguments = {"X": X, "Y": Y, "likelihood": likelihood}
    kinds = {"X": "paired inputs", "Y": outputs, "likelihood": "likelihood", **more}
    if "kernel" in more:
        right["kernel"] = kernel
    return Entry(call, right, kinds, {"Y": ("twice the columns",)})  # one latent a column


def _fit(model: Any, X: Any, Y: Any, **options: Any) -> object:
    data = None if hasattr(model, "data") else (X, Y)
    return gd.fit(model, data, **{"steps": 1, "progress": False, "compile": False, **options})


_FIT_OPTIONS = {
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
}


def _verb(name: str, data: bool = False, make: Callable = sparse) -> Entry:
    if data:
        call = lambda X, Y: getattr(make(), name)((X, Y))  # noqa: E731
        return Entry(call, {"X": X, "Y": Y}, {"X": "paired inputs", "Y": "outputs"})
    return Entry(lambda Xnew: getattr(make(), name)(Xnew), {"Xnew": X}, {"Xnew": "new inputs"})


def _run(rule: Callable[..., Any], make: Callable, *names: str, **kinds: str) -> Entry:
    """A rule with its options and its run on a model, whose options are `names`."""

    def call(model: Any, **options: Any) -> object:
        own = {name: value for name, value in options.items() if name in names}
        return rule(**{name: value for name, value in options.items() if name not in names}).run(
            model, **own
        )

    return Entry(call, {"model": make}, {"model": "model", **kinds})


def _standardized(build: Any, X: Any, Y: Any) -> object:
    return gd.Standardized(build, (X, Y))


def _build(X: Any, Y: Any) -> object:
    return gpflow.models.SVGP(kernel(), noise(), X[:4])


def _topic_model(kind: Callable, **kinds: str) -> Entry:
    def call(documents: Any, **options: Any) -> object:
        return kind(**{"num_topics": 2, "max_passes": 2, **options}).fit(documents)

    return Entry(
        call,
        {"documents": DOCUMENTS},
        {"documents": "documents", "num_topics": "whole number", **kinds},
    )


def _certificate(model: Any, X: Any, Y: Any, **options: Any) -> object:
    return gd.pac_bayes_certificate(model, (X, Y), hyperparameters="fixed", **options)


ENTRIES: dict[str, Entry] = {
    **{
        kind.__name__: _sparse_model(kind)
        for kind in (models.ODVGP, models.HDVGP, models.DVGP, models.SOLVEGP)
    },
    "build": Entry(
        lambda X, Y, **given: gd.build(X, Y, verbose=False, **given),
        {"X": X, "Y": Y},
        {
            "X": "inputs",
            "Y": "outputs",
            "likelihood": "word",
            "num_inducing": "whole number",
            "seed": "whole number",
        },
        {
            "X": ("integers", "booleans", "float32"),
            "Y": ("twice the columns", "float32"),
            "seed": ("0",),
        },
    ),
    "initialize": Entry(
        lambda X, Y, **given: training.initialize(data=(X, Y), **given),
        {**_PARTS, "X": X, "Y": Y},
        {
            "kernel": "kernel",
            "X": "paired inputs",
            "Y": "outputs",
            "rows": "whole number",
            "mean_function": "mean function",
        },
    ),
    "update of points": Entry(
        lambda X, Y, **given: sparse().update((X, Y), **given),
        {"X": X, "Y": Y, "beta": BETA},
        {
            "X": "paired inputs",
            "Y": "outputs",
            "keep": "share",
            "tolerance": "rate",
            "beta": "points",
        },
        {"beta": ("None",)},
    ),
    "ODVGP options": Entry(
        lambda **given: models.ODVGP(**given),
        {**_PARTS, "gamma": GAMMA, "beta": BETA},
        {"mean_scaling": "word", "mean_subsample": "whole number"},
    ),
    "SparseCVIGP": Entry(
        lambda **given: models.SparseCVIGP(**given),
        {**_PARTS, "inducing_variable": BETA},
        {**_KINDS, "inducing_variable": "points", **_OPTIONS},
        _ALONE,
    ),
    "BasisGP": Entry(
        lambda points, **given: models.BasisGP(basis=gd.bases.CoupledBasis(points), **given),
        {**_PARTS, "points": BETA},
        {
            **_KINDS,
            "points": "points",
            "num_data": "whole number",
            "mean_function": "mean function",
        },
        _ALONE,
    ),
    "CVIGP": _full_model(
        models.CVIGP,
        Y,
        noise,
        "outputs",
        kernel="kernel",
        mean_function="mean function",
        num_latent_gps="whole number",
    ),
    "CVIGP of labels": _full_model(
        models.CVIGP, LABELS, gpflow.likelihoods.Bernoulli, "labels", kernel="kernel"
    ),
    "LCLGP": _full_model(
        models.LCLGP,
        COUNTS,
        gpflow.likelihoods.Poisson,
        "counts",
        kernel="kernel",
        mean_function="mean function",
    ),
    "AffineIndependentGP": _full_model(
        models.AffineIndependentGP,
        LABELS,
        gd.likelihoods.BernoulliLogit,
        "labels",
        kernel="kernel",
        base="word",
        structure="word",
        route="word",
        frequencies="whole number",
        memory="rate",
    ),
    "CVIGLM": _full_model(
        models.CVIGLM, Y, noise, "outputs", form="word", intercept_variance="rate", prior="object"
    ),
    "LCLGLM": _full_model(models.LCLGLM, COUNTS, gpflow.likelihoods.Poisson, "counts", form="word"),
    "AffineIndependentGLM": _full_model(
        models.AffineIndependentGLM, LABELS, gd.likelihoods.BernoulliLogit, "labels", prior="object"
    ),
    "Factor": Entry(
        lambda data: models.Factor("z", lambda z, y: z, data=data),
        {"data": COUNTS},
        {"data": "inputs"},
        {
            "data": (
                "rank 1",
                "rank 3",
                "no rows",
                "no columns",
                "integers",
                "booleans",
                "float32",
                "extended precision",
            )
        },
    ),
    "MonteCarlo": Entry(models.MonteCarlo, {}, {"num_samples": "whole number"}),
    "fit": Entry(
        _fit,
        {"model": sparse, "X": X, "Y": Y},
        {"model": "model", "X": "paired inputs", "Y": "outputs"},
    ),
    "fit, data": Entry(
        lambda data: gd.fit(sparse(), data, steps=1, progress=False, compile=False),
        {"data": (X, Y)},
        {"data": "pair"},
    ),
    "fit, options": Entry(
        _fit,
        {"model": sparse, "X": X, "Y": Y},
        {**_FIT_OPTIONS, "initialize": "word"},
        {"checkpoint": ("no such",)},
    ),  # the name of a folder
    "fit of sites": Entry(
        _fit,
        {"model": classifier, "X": X, "Y": Y},
        {
            name: _FIT_OPTIONS[name]
            for name in ("natural_gradient", "hold", "learning_rate", "steps")
        },
    ),
    "fit of multipliers": Entry(
        _fit,
        {"model": dual, "X": X, "Y": Y},
        {name: _FIT_OPTIONS[name] for name in ("hold", "learning_rate", "steps", "schedule")},
    ),
    "Schedule": Entry(
        training.Schedule,
        {},
        {"ramp_steps": "whole number", "anneal": "share", "refresh_every": "whole number"},
        {"ramp_steps": ("0",), "anneal": ("0.0",)},
    ),
    "Evaluation": Entry(
        lambda **given: training.Evaluation((X, Y), **given),
        {},
        {"every": "whole number", "patience": "whole number"},
    ),
    "Checkpoints": Entry(
        lambda **given: training.Checkpoints("run", **given), {}, {"every": "whole number"}
    ),
    "MeanSolver": Entry(
        lambda **given: training.MeanSolver(**{"method": "adam", **given}),
        {},
        {"method": "word", "learning_rate": "rate"},
    ),
    "Standardized": Entry(
        _standardized,
        {"build": lambda: _build, "X": X, "Y": Y},
        {"build": "callable", "X": "paired inputs", "Y": "outputs"},
        {
            "X": ("float32", "extended precision"),
            "Y": ("float32", "extended precision", "twice the columns"),
        },
    ),
    "elbo": _verb("elbo", data=True),
    "training_loss": _verb("training_loss", data=True),
    "training_loss_closure": _verb("training_loss_closure", data=True),
    "predict_f": _verb("predict_f"),
    "predict_y": _verb("predict_y"),
    "predict_f_samples": _verb("predict_f_samples"),
    "predict_log_density": _verb("predict_log_density", data=True),
    "predict_f of sites": _verb("predict_f", make=classifier),
    "predict_y of a linear model": _verb("predict_y", make=linear),
    "update": Entry(
        lambda X, Y: classifier().update((X, Y)),
        {"X": X, "Y": LABELS},
        {"X": "paired inputs", "Y": "labels"},
    ),
    "weights_posterior": Entry(models.weights_posterior, {"model": linear}, {"model": "model"}),
    "select": Entry(
        lambda X, M, method="greedy_variance", **given: inducing.select(
            X, M, kernel(), method=method, **given
        ),
        {"X": X, "M": 2, "given": GAMMA},
        {"X": "inputs", "M": "whole number", "method": "word", "given": "points"},
        {
            "X": ("float32", "integers", "booleans", "extended precision"),
            "given": ("float32", "None", "duplicates"),
        },
    ),
    "NaturalGradient": Entry(
        lambda X, Y, **given: optimizers.NaturalGradient(**given).minimize(sparse(), (X, Y)),
        {"X": X, "Y": Y},
        {
            "X": "paired inputs",
            "Y": "outputs",
            "gamma": "share",
            "mean": "word",
            "negative_precision": "word",
        },
    ),
    "sweep": Entry(
        lambda X, Y, **given: optimizers.sweep(
            linear(), (X, Y), **{"passes": 2, "compile": False, **given}
        ),
        {"X": X, "Y": Y},
        {
            "X": "paired inputs",
            "Y": "outputs",
            "step_size": "share",
            "block": "whole number",
            "passes": "whole number",
        },
    ),
    "optimal_parameters": Entry(
        lambda model, X, Y: optimizers.optimal_parameters(model, (X, Y)),
        {"model": sparse, "X": X, "Y": Y},
        {"model": "model", "X": "paired inputs", "Y": "outputs"},
    ),
    "collapsed_elbo": Entry(
        lambda model, X, Y: optimizers.collapsed_elbo(model, (X, Y)),
        {"model": sparse, "X": X, "Y": Y},
        {"model": "model", "X": "paired inputs", "Y": "outputs"},
    ),
    "ConjugateComputation": _run(
        optimizers.ConjugateComputation,
        classifier,
        "steps",
        "batch_size",
        step_size="share",
        update="word",
        samples="whole number",
        steps="whole number",
        batch_size="whole number",
    ),
    "MeanFieldCVI": _run(
        optimizers.MeanFieldCVI,
        graph,
        "steps",
        step_size="share",
        schedule="word",
        steps="whole number",
    ),
    "LinearlyConstrainedLagrangian": _run(
        optimizers.LinearlyConstrainedLagrangian,
        dual,
        inner="word",
        tolerance="rate",
        trust_region="rate",
    ),
    "ConstraintSubset": _run(
        optimizers.ConstraintSubset,
        dual,
        size="whole number",
        learning_rate="rate",
        steps="whole number",
    ),
    "pathwise_samples": Entry(
        lambda **given: pathwise.pathwise_samples(**{"num_frequencies": 20, **given})(X),
        {"model": sparse, "num_samples": 2},
        {"model": "model", "num_samples": "whole number", "num_frequencies": "whole number"},
    ),
    "pathwise_samples at": Entry(
        lambda Xnew: pathwise.pathwise_samples(sparse(), 2, num_frequencies=20)(Xnew),
        {"Xnew": X},
        {"Xnew": "new inputs"},
    ),
    "pac_bayes_certificate": Entry(
        _certificate,
        {"model": classifier, "X": X, "Y": LABELS},
        {
            "model": "model",
            "X": "paired inputs",
            "Y": "labels",
            "delta": "share",
            "settings": "whole number",
        },
    ),
    "split_for_certificate": Entry(
        lambda X, Y, **given: certificates.split_for_certificate((X, Y), **given),
        {"X": X, "Y": LABELS},
        {"X": "paired inputs", "Y": "outputs", "fraction": "share"},
    ),
    "LatentDirichletAllocation": _topic_model(
        topics.LatentDirichletAllocation, method="word", max_passes="whole number", doc_prior="rate"
    ),
    "CorrelatedTopicModel": _topic_model(
        topics.CorrelatedTopicModel, posterior="word", max_passes="whole number"
    ),
}
"""By name."""
