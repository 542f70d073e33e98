"""Public calls, the arguments that they take, and of what kind each is."""

from __future__ import annotations

__all__ = ["ENTRIES"]

import gpflow

import gpflow_decoupled as gd
from gpflow_decoupled import certificates, inducing, models, optimizers, pathwise, topics, training

from .calls import (
    ALONE,
    FIT_OPTIONS,
    KINDS,
    LATENTS,
    OPTIONS,
    PARTS,
    Entry,
    bound,
    build,
    certificate,
    fitted,
    full_model,
    inputs,
    method,
    plot,
    score,
    settings,
    sparse_model,
    standardized,
    topic_model,
    verb,
    with_size,
)
from .local_entries import LOCAL
from .world import (
    BETA,
    COUNTS,
    GAMMA,
    LABELS,
    X,
    Y,
    affine,
    classifier,
    dataset,
    dual,
    graph,
    kernel,
    linear,
    noise,
    on_data,
    one_column,
    projected,
    sparse,
)
from .wrong_values import OTHER_FLOATS

ENTRIES: dict[str, Entry] = {
    **LOCAL,
    **{
        kind.__name__: sparse_model(kind)
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
            "X": (*OTHER_FLOATS, "integers", "booleans", "a frame with text", "a series"),
            "Y": (*OTHER_FLOATS, "a series", "rank 1", "twice the columns"),
            "seed": ("0",),
        },
    ),
    "initialize": Entry(
        lambda X, Y, **given: training.initialize(data=(X, Y), **given),
        {**PARTS, "X": X, "Y": Y},
        {
            "kernel": "kernel",
            "X": "paired inputs",
            "Y": "outputs",
            "rows": "whole number",
            "mean_function": "mean function",
        },
        {"Y": ("twice the columns",)},
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
        {**PARTS, "gamma": GAMMA, "beta": BETA},
        {"mean_scaling": "word", "mean_subsample": "whole number"},
    ),
    "SparseCVIGP": Entry(
        lambda **given: models.SparseCVIGP(**given),
        {**PARTS, "inducing_variable": BETA},
        {**KINDS, "inducing_variable": "points", **OPTIONS},
        ALONE,
    ),
    "BasisGP": Entry(
        lambda points, **given: models.BasisGP(basis=gd.bases.CoupledBasis(points), **given),
        {**PARTS, "points": BETA},
        {
            **KINDS,
            "points": "points",
            "num_data": "whole number",
            "mean_function": "mean function",
        },
        ALONE,
    ),
    "CVIGP": full_model(
        models.CVIGP,
        Y,
        noise,
        "outputs",
        kernel="kernel",
        mean_function="mean function",
        num_latent_gps="whole number",
    ),
    "CVIGP of labels": full_model(
        models.CVIGP, LABELS, gpflow.likelihoods.Bernoulli, "labels", kernel="kernel"
    ),
    "LCLGP": full_model(
        models.LCLGP,
        COUNTS,
        gpflow.likelihoods.Poisson,
        "counts",
        kernel="kernel",
        mean_function="mean function",
        num_latent_gps="whole number",
    ),
    "AffineIndependentGP": full_model(
        models.AffineIndependentGP,
        LABELS,
        gd.likelihoods.BernoulliLogit,
        "labels",
        kernel="kernel",
        base="word",
        structure="word",
        route="word",
        frequencies="whole number",
        points="whole number",
        memory="rate",
    ),
    "CVIGLM": full_model(
        models.CVIGLM,
        Y,
        noise,
        "outputs",
        form="word",
        intercept_variance="rate",
        prior="object",
        num_data="whole number",
        num_latent_gps="whole number",
    ),
    "DTC": Entry(
        lambda X, Y, **given: models.DTC((X, Y), inducing_variable=BETA, **given),
        {"X": X, "Y": Y, "kernel": kernel},
        {"X": "inputs of points", "Y": "outputs", "kernel": "kernel"},
        {"Y": ("twice the columns",), **LATENTS},
    ),
    "LCLGLM": full_model(models.LCLGLM, COUNTS, gpflow.likelihoods.Poisson, "counts", form="word"),
    "AffineIndependentGLM": full_model(
        models.AffineIndependentGLM, LABELS, gd.likelihoods.BernoulliLogit, "labels", prior="object"
    ),
    "Factor": Entry(
        lambda data: models.Factor("z", lambda z, y: z, data=data),
        {"data": COUNTS},
        {"data": "inputs"},
        {
            "data": (
                "rank 1",
                "a series",
                "rank 3",
                "no rows",
                "no columns",
                "integers",
                "booleans",
                *OTHER_FLOATS,
            )
        },
    ),
    "MonteCarlo": Entry(models.MonteCarlo, {}, {"num_samples": "whole number"}),
    "fit": Entry(
        fitted,
        {"model": sparse, "X": X, "Y": Y},
        {"model": "model", "X": "inputs of points", "Y": "outputs"},
    ),
    **{
        f"fit of {outputs}": Entry(
            fitted,
            {"model": lambda likelihood=likelihood: sparse(likelihood), "X": X, "Y": right},
            {"Y": outputs},
        )
        for outputs, likelihood, right in (
            ("labels", gpflow.likelihoods.Bernoulli, LABELS),
            ("counts", gpflow.likelihoods.Poisson, COUNTS),
            ("classes", lambda: gpflow.likelihoods.MultiClass(3), LABELS),
        )
    },
    "fit, data": Entry(
        lambda model, data: gd.fit(model, data, steps=1, progress=False, compile=False),
        {"model": sparse, "data": (X, Y)},
        {"data": "pair"},
    ),
    "fit, dataset": Entry(
        lambda model, data: gd.fit(model, data, steps=1, progress=False, compile=False),
        {"model": sparse, "data": dataset},
        {"data": "dataset"},
    ),
    "fit, options": Entry(
        fitted,
        {"model": sparse, "X": X, "Y": Y},
        {**FIT_OPTIONS, "initialize": "word"},
        {"checkpoint": ("no such",)},
    ),  # the name of a folder
    "fit of sites": Entry(
        fitted,
        {"model": classifier, "X": X, "Y": Y},
        {
            name: FIT_OPTIONS[name]
            for name in ("natural_gradient", "hold", "learning_rate", "steps")
        },
    ),
    "fit of multipliers": Entry(
        fitted,
        {"model": dual, "X": X, "Y": Y},
        {name: FIT_OPTIONS[name] for name in ("hold", "learning_rate", "steps", "schedule")},
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
        standardized,
        {"build": lambda: build, "X": X, "Y": Y},
        {"build": "callable", "X": "paired inputs", "Y": "outputs"},
        {
            "X": (*OTHER_FLOATS, "integers", "booleans", "a frame with text", "a series"),
            "Y": (*OTHER_FLOATS, "a series", "twice the columns", "rank 1"),
        },
    ),
    **{
        name: bound(name)
        for name in (
            "elbo",
            "training_loss",
            "maximum_log_likelihood_objective",
            "training_loss_closure",
            "predict_log_density",
        )
    },
    **{
        f"{name} of labels": bound(
            name, lambda: sparse(gpflow.likelihoods.Bernoulli), LABELS, "labels"
        )
        for name in ("elbo", "training_loss", "maximum_log_likelihood_objective")
    },
    "predict_log_density of sites": bound("predict_log_density", classifier, LABELS, "labels"),
    "num_data of a model": Entry(
        with_size, {"model": sparse, "num_data": 12}, {"num_data": "whole number"}
    ),
    **{
        f"{name} of {kind}": verb(name, make, **({"num_samples": 2} if "samples" in name else {}))
        for kind, make in {
            "points": sparse,
            "sites": classifier,
            "sums": affine,
            "a projection": projected,
            "a linear model": linear,
        }.items()
        for name in ("predict_f", "predict_y", "predict_f_samples")
    },
    "predict_f of a posterior": verb("predict_f", lambda: sparse().posterior()),
    "update": Entry(
        lambda model, X, Y: model.update((X, Y)),
        {"model": classifier, "X": X, "Y": LABELS},
        {"X": "paired inputs", "Y": "labels"},
    ),
    "weights_posterior": Entry(models.weights_posterior, {"model": linear}, {"model": "model"}),
    "with_neighbours": Entry(
        lambda model, X, Y, **given: models.with_neighbours(model, (X, Y), **given),
        {"model": on_data, "X": X, "Y": Y},
        {
            "model": "model",
            "X": "paired inputs",
            "Y": "outputs",
            "num_neighbours": "whole number",
            "prediction_neighbours": "whole number",
            "seed": "whole number or 0",
        },
    ),
    "select": Entry(
        lambda X, M, method="greedy_variance", **given: inducing.select(
            X, M, kernel(), method=method, **given
        ),
        {"X": X, "M": 2, "given": GAMMA},
        {"X": "inputs", "M": "whole number", "method": "word", "given": "points"},
        {
            "X": (*OTHER_FLOATS, "integers", "booleans"),
            "given": ("float32", "None", "duplicates"),
        },
    ),
    "NaturalGradient": Entry(
        lambda model, X, Y, **given: optimizers.NaturalGradient(**given).minimize(model, (X, Y)),
        {"model": sparse, "X": X, "Y": Y},
        {
            "X": "inputs of points",
            "Y": "outputs",
            "gamma": "share",
            "mean": "word",
            "negative_precision": "word",
        },
    ),
    "NaturalGradient of the mean": settings(
        lambda **given: optimizers.NaturalGradient(**{"mean": "newton", **given}),
        mean_step="rate",
        rank="whole number",
        cg_iterations="whole number",
        cg_tolerance="rate",
    ),
    "sweep": Entry(
        lambda model, X, Y, **given: optimizers.sweep(
            model, (X, Y), **{"passes": 2, "compile": False, **given}
        ),
        {"model": linear, "X": X, "Y": Y},
        {
            "X": "inputs of points",
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
    "ConjugateComputation": method(
        optimizers.ConjugateComputation,
        classifier,
        "steps",
        "batch_size",
        "tolerance",
        tolerance="rate or 0",
        step_size="share",
        update="word",
        samples="whole number",
        steps="whole number",
        batch_size="whole number",
    ),
    "MeanFieldCVI": method(
        optimizers.MeanFieldCVI,
        graph,
        "steps",
        step_size="share",
        schedule="word",
        steps="whole number",
    ),
    "LinearlyConstrainedLagrangian": method(
        optimizers.LinearlyConstrainedLagrangian,
        dual,
        inner="word",
        tolerance="rate",
        trust_region="rate",
        theta="rate or 0",
        sweeps="whole number or 0",
        max_outer="whole number",
    ),
    "ConstraintSubset": method(
        lambda **given: optimizers.ConstraintSubset(**{"size": 3, **given}),
        dual,
        size="whole number",
        batch_size="whole number",
        learning_rate="rate",
        tolerance="rate",
        steps="whole number",
    ),
    **{
        kind.__name__: settings(kind, tolerance="rate", max_evaluations="whole number")
        for kind in (
            optimizers.OpperArchambeau,
            optimizers.CholeskyKL,
            optimizers.AffineIndependentAscent,
        )
    },
    "JaakkolaJordan": settings(
        optimizers.JaakkolaJordan, tolerance="rate", max_steps="whole number"
    ),
    "MixtureAscent": settings(
        optimizers.MixtureAscent, components="whole number", tolerance="rate"
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
    "pac_bayes_certificate": score(
        certificate, model="model", delta="share", settings="whole number"
    ),
    "pac_bayes_certificate, learned_on": score(
        lambda model, X, Y: gd.pac_bayes_certificate(model, (inputs, LABELS), learned_on=(X, Y)),
        X="scored",
        Y="scored",
    ),
    "classifier_errors": score(
        lambda model, X, Y: certificates.classifier_errors(model, (X, Y)),
    ),
    "select_by_certificate": score(
        lambda model, X, Y: certificates.select_by_certificate(lambda _: model, [1], (X, Y)),
    ),
    "split_for_certificate": Entry(
        lambda X, Y, **given: certificates.split_for_certificate((X, Y), **given),
        {"X": X, "Y": LABELS},
        {"X": "plotted", "Y": "plotted", "fraction": "share", "seed": "whole number or 0"},
        {"X": ("rank 1",), "Y": ("rank 1",)},
    ),
    "held_out_metrics": score(lambda model, X, Y: training.held_out_metrics(model, (X, Y))),
    "plot_calibration": score(plot("plot_calibration"), X="scored", Y="scored"),
    "plot_posterior_1d": Entry(
        plot("plot_posterior_1d"),
        {"model": one_column, "X": X[:, :1], "Y": Y},
        {"X": "plotted", "Y": "scored", "num_points": "whole number"},
    ),
    "Standardization.transform": Entry(
        lambda X: training.Standardization(inputs, "X").transform(X),
        {"X": X},
        {"X": "scored"},
    ),
    "LatentDirichletAllocation": topic_model(
        topics.LatentDirichletAllocation, method="word", max_passes="whole number", doc_prior="rate"
    ),
    "CorrelatedTopicModel": topic_model(
        topics.CorrelatedTopicModel, posterior="word", max_passes="whole number"
    ),
}
"""By name."""
