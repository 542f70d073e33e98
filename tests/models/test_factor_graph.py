"""Factor graphs: priors, and what is refused, by the names of variable and factor and with nothing
changed.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions.families import Categorical, Dirichlet, Gamma
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import Factor, FactorGraph, SampledFactor, prior_factor
from gpflow_decoupled.optimizers import MeanFieldCVI

SEED = tf.constant([0, 0], tf.int32)
rate = Gamma().belief(2.0, 3.0)
rates = Gamma().belief([1.0, 2.0, 3.0], 0.5)
mean_of = lambda z: tf.reduce_sum(z.expectation[1])  # noqa: E731


def graph(variables=None, **factors) -> FactorGraph:
    return FactorGraph({"rate": rate} if variables is None else variables, factors)


@pytest.mark.parametrize("prior", [rate, rates])
@pytest.mark.parametrize("local", [False, True])
def test_priors_are_what_they_say(prior, local):
    """The bound of a prior alone is minus its divergence from q, summed over the rows; its message
    is its parameter.
    """
    alone = graph({"rate": rates}, prior=prior_factor("rate", prior, local=local))
    assert alone.num_data == (3 if local else None)
    divergence = tf.reduce_sum(rates.family.kl(rates.natural, prior.natural))
    assert_allclose(alone.elbo(), -divergence, rtol=1e-12)
    MeanFieldCVI().minimize(alone)
    assert_allclose(alone.elbo(), 0.0, atol=1e-12)
    assert_allclose(alone["rate"].natural[0], prior.natural[0] + np.zeros(3))


def test_messages_start_as_shares_of_the_start():
    two = graph(first=prior_factor("rate", rate), second=Factor("rate", mean_of))
    assert_allclose(two["rate"].natural, rate.natural)
    assert two.factors_of("rate") == ["first", "second"]


THREE, FOUR = np.ones(3), np.ones(4)
BAD_GRAPHS = {
    r"neighbours of a factor are \(\); name at least one": lambda: Factor((), mean_of),
    "name at least one variable, each once": lambda: Factor(("a", "a"), mean_of),
    r"local=\('b',\) must be among the neighbours": lambda: Factor("a", mean_of, local="b"),
    r"data\[0\] of a factor has entries that": lambda: Factor("a", mean_of, data=[1.0, np.nan]),
    r"have \[3, 4\] rows": lambda: Factor("a", mean_of, data=(THREE, FOUR)),
    r"have \[None\] rows": lambda: Factor("a", mean_of, data=1.0),
    "samples=0 of a factor must be at least 1": lambda: SampledFactor("a", tf.exp, samples=0),
    "the factor 'prior' has the neighbour 'scale', which is no variable; there are 'rate'": (
        lambda: graph(prior=Factor("scale", mean_of))
    ),
    "the variable 'other' has no factor; give it a prior": (
        lambda: graph({"rate": rate, "other": rate}, prior=prior_factor("rate", rate))
    ),
    "the factor 'f' samples 'z', and draws of a Categorical have no gradients": lambda: graph(
        {"z": Categorical().belief([0.0, 0.0])}, f=SampledFactor("z", lambda z: z[:, 0])
    ),
    "'rate' has a row for each observation in one factor but not in 'g'": lambda: graph(
        {"rate": rates}, f=prior_factor("rate", rate, local=True), g=Factor("rate", mean_of)
    ),
    "the factor 'f' has 3, the factor 'g' has 4": lambda: graph(
        f=Factor("rate", mean_of, data=THREE), g=Factor("rate", mean_of, data=FOUR)
    ),
    "the factor 'f' has 3, the variable 'rate' has 0": (
        lambda: graph(f=Factor("rate", mean_of, data=THREE, local="rate"))
    ),
}


@pytest.mark.parametrize("message", BAD_GRAPHS)
def test_bad_graphs_are_refused(message):
    with pytest.raises(DataError, match=message):
        BAD_GRAPHS[message]()


BAD_FACTORS = {
    r"has shape \(2,\); it": Factor("rate", lambda z: z.expectation[1] * np.ones(2)),
    "'f' does not depend on its neighbour": Factor("rate", lambda z: tf.zeros([], tf.float64)),
    r"factor on \('rate',\) returned the shape \(\) for 10": SampledFactor("rate", tf.reduce_sum),
}


@pytest.mark.parametrize("message", BAD_FACTORS)
def test_bad_factors_are_refused_before_the_first_step(message):
    bad = graph(prior=prior_factor("rate", rate), f=BAD_FACTORS[message])
    with pytest.raises(DataError, match=message):
        MeanFieldCVI().minimize(bad)
    assert_allclose(bad["rate"].natural, rate.natural)


@pytest.mark.exhaustive
def test_failures_name_factor_and_variable():
    infinite = Factor("rate", lambda z: z.expectation[1] / tf.zeros([], tf.float64))
    improper = Factor("rate", mean_of)  # asks for a rate of -1
    lost = Factor("rate", lambda z: tf.sqrt(z.expectation[1] - 2.0 / 3.0))  # of infinite slope
    cases = {
        "the expectation of the factor 'bad' is inf at the beliefs about 'rate'": {"bad": infinite},
        "the message of the factor 'bad' to the variable 'rate' is not finite": {"bad": lost},
        "the messages of 'bad' lead the Gamma 'rate' out of its domain": {"bad": improper},
    }
    for message, factors in cases.items():
        model = graph(**factors)
        with pytest.raises(NumericalError, match=message):
            MeanFieldCVI().run(model, steps=100)
        assert np.all(model["rate"].family.in_domain(model["rate"].natural))


BAD_OPTIONS = {
    "step_size=0.0 at step 0 must be a number above 0": {"step_size": 0.0},
    "step_size=2.0 at step 0": {"step_size": lambda step: 2.0},
    "local_step_size=1.5 must be a number above 0": {"local_step_size": 1.5},
    "local_sweeps=0 must be at least 1": {"local_sweeps": 0},
    "schedule='random' is not known": {"schedule": "random"},
    "update='both' is not known": {"update": "both"},
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_bad_options_are_refused(message):
    with pytest.raises((DataError, UnknownOptionError), match=message):
        MeanFieldCVI(**BAD_OPTIONS[message])


def test_batches_need_rows():
    with pytest.raises(DataError, match="batch_size=2 needs factors with data"):
        MeanFieldCVI().run(graph(prior=prior_factor("rate", rate)), batch_size=2)
    three = graph(f=Factor("rate", mean_of, data=THREE))
    with pytest.raises(DataError, match="batch_size=4 must be from 1 to .* observations, 3"):
        MeanFieldCVI().run(three, batch_size=4)


def test_classes_and_their_weights_are_messages_of_log_weights():
    """A categorical with a Dirichlet over its weights: the message to it is E log theta, that to
    the weights its mean.
    """
    choice = Factor(
        ("z", "weights"), lambda z, w: tf.reduce_sum(z.expectation[0] * w.expectation[0])
    )
    variables = {
        "z": Categorical().belief([0.2, 1.0, -0.5]),
        "weights": Dirichlet().belief([1.0, 2.0, 0.5]),
    }
    model = graph(variables, choice=choice)
    naturals = model.naturals(model.current())
    messages = model.outgoing("choice", naturals, ["z", "weights"], (), SEED)
    assert_allclose(messages["z"][0], variables["weights"].expectation[0])
    assert_allclose(messages["weights"][0], variables["z"].expectation[0])
