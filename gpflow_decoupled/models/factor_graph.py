"""Factor graphs (Khan & Lin 2017, arXiv:1703.04265, section 5)."""

from __future__ import annotations

__all__ = ["Factor", "FactorGraph", "Messages", "SampledFactor", "prior_factor"]

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import tensorflow as tf
from gpflow.base import TensorType

from ..distributions.family import Belief, Natural, as_float
from ..errors import DataError
from ..summaries import one_line, short_repr

# ---
# Factors of a joint density.


Data: TypeAlias = "TensorType | tuple[TensorType, ...]"
"""An array [N, ...], or several."""


class Factor:
    """A factor f with a known E_q log f, a function of its neighbours' beliefs.

    :param neighbours: the names of its variables.
    :param expectation: (one `Belief` per neighbour, data) -> a scalar in nats, summed over rows.
        Its gradient in `belief.expectation` (mu) is the message; one in `belief.natural` (lambda)
        is multiplied by the inverse Fisher matrix.
    :param data: an array [N, ...] or a tuple of them, one row per observation; minibatches pass
        some rows. Integers become floats.
    :param local: neighbours with one row per row of the data, as first batch axis.

    Example, Poisson counts y [N] with a Gamma rate z, mu = (E log z, E z)::

        counts = Factor(
            "rate", lambda z, y: tf.reduce_sum(y * z.expectation[0] - z.expectation[1]), data=y
        )
    """

    samples: int | None = None
    """Draws that the expectation averages; None if exact."""

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        expectation: Callable[..., tf.Tensor],
        *,
        data: Data = (),
        local: Sequence[str] | str = (),
    ) -> None:
        self.neighbours = (neighbours,) if isinstance(neighbours, str) else tuple(neighbours)
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.expectation = expectation
        arrays = data if isinstance(data, tuple) else (data,)
        self.data = tuple(
            as_float(f"data[{place}] of a factor", array) for place, array in enumerate(arrays)
        )
        if not self.neighbours or len(set(self.neighbours)) < len(self.neighbours):
            raise DataError(
                f"the neighbours of a factor are {self.neighbours}; name at least one variable,"
                " each once."
            )
        if not set(self.local) <= set(self.neighbours):
            raise DataError(
                f"local={self.local} must be among the neighbours {self.neighbours} of the factor."
            )
        rows = [array.shape[0] if array.shape.rank else None for array in self.data]
        if None in rows or len(set(rows)) > 1:
            raise DataError(
                f"the data of a factor have {rows} rows; they must be arrays with one row per"
                " observation."
            )

    def expected(
        self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor
    ) -> tf.Tensor:
        """E_q log f, a scalar in nats, for a belief per neighbour and rows of the data [B, ...].

        :param seed: [2], for factors that draw samples.
        """
        return self.expectation(*beliefs, *data)


class SampledFactor(Factor):
    """A factor with a log density only; its expectation is estimated from draws.

    Gradients are implicit reparameterisations (Figurnov et al. 2018) times the inverse Fisher
    matrix.

    :param log_density: (draws [S, ...] per neighbour, data) -> log f [S, ...] in nats, summed over
        all axes but the first.
    :param samples: S, draws per step; the error falls as 1 / sqrt(S), at S densities.
    :param data: as of `Factor`, as `local`.

    Example, counts y [N] with the rate exp(z)::

        counts = SampledFactor(
            "z", lambda z, y: y * z[:, None] - tf.exp(z)[:, None], data=y, samples=20
        )
    """

    samples: int

    def __init__(
        self,
        neighbours: Sequence[str] | str,
        log_density: Callable[..., tf.Tensor],
        *,
        samples: int = 10,
        data: Data = (),
        local: Sequence[str] | str = (),
    ) -> None:
        super().__init__(neighbours, log_density, data=data, local=local)
        if samples < 1:
            raise DataError(f"samples={short_repr(samples)} of a factor must be at least 1.")
        self.samples = samples

    def expected(
        self, beliefs: Sequence[Belief], data: Sequence[tf.Tensor], seed: tf.Tensor
    ) -> tf.Tensor:
        """An unbiased estimate of E_q log f, a scalar in nats, differentiable in lambda.

        Arguments as `Factor.expected`, the seed is [2].
        """
        # (C36)
        seeds = tf.unstack(tf.random.split(seed, len(beliefs)))
        draws = [belief.sample(self.samples, one) for belief, one in zip(beliefs, seeds)]
        values = self.expectation(*draws, *data)
        if values.shape.rank == 0 or values.shape[0] != self.samples:
            raise DataError(
                f"log_density of the factor on {self.neighbours} returned the shape"
                f" {tuple(values.shape)} for {self.samples} samples; its first axis must be"
                " theirs."
            )
        return tf.reduce_sum(values) / self.samples


def prior_factor(name: str, belief: Belief, *, local: bool = False) -> Factor:
    """Return the factor of a prior on `name`, of the variable's family, with an exact message.

    :param local: the variable has a row per observation, the prior one or one per row.

    Example::

        prior = prior_factor("rate", Gamma().belief(2.0, 0.5))
    """
    family, natural = belief.family, belief.natural
    shared = natural[0].shape.rank == family.ranks[0]

    def expectation(q: Belief, *rows: tf.Tensor) -> tf.Tensor:
        at = rows or natural
        size = tf.zeros_like(family.log_partition(q.natural))
        return tf.reduce_sum(family.inner(q.expectation, at) - family.log_partition(at) + size)

    return Factor(
        name, expectation, data=() if shared or not local else natural, local=name if local else ()
    )


# ---


Messages = dict[str, dict[str, Natural]]
"""Messages by factor, then variable, in the shape of the variable's natural parameter."""
Rows = Mapping[str, Sequence[tf.Tensor]]
"""The data of each factor, or some rows."""


class FactorGraph(tf.Module):
    """A model as a factor graph, with a mean-field q that `optimizers.MeanFieldCVI` trains.

    p(z) is proportional to the product of factors; q(z) = prod_k q_k(z_k) has sums of messages as
    natural parameters. `graph["z"]` is a variable's belief.

    :param variables: by name, the initial beliefs. Batch axes are independent variables.
    :param factors: by name; their product is the joint density.

    Example::

        # `counts` as on the page of `Factor`
        prior = prior_factor("rate", Gamma().belief(2.0, 0.5))
        beliefs = {"rate": Gamma().belief(1.0, 1.0)}
        graph = FactorGraph(beliefs, {"prior": prior, "counts": counts})
        result = MeanFieldCVI().run(graph)
        graph["rate"].distribution.mean()
    """

    route: ClassVar[str] = "messages"
    """The name of the route by which `fit` trains it."""

    def __init__(self, variables: Mapping[str, Belief], factors: Mapping[str, Factor]) -> None:
        super().__init__()
        self.families = {name: belief.family for name, belief in variables.items()}
        self.factors = dict(factors)
        self.local = {name for factor in factors.values() for name in factor.local}
        self._check_names()
        self.num_data = self._check_sizes(variables)
        degree = {name: len(self.factors_of(name)) for name in variables}
        self.messages = {
            key: {
                name: tuple(tf.Variable(part / degree[name]) for part in variables[name].natural)
                for name in factor.neighbours
            }
            for key, factor in self.factors.items()
        }

    def __repr__(self) -> str:
        return one_line(self, variables=self.families, factors=self.factors)

    def __getitem__(self, name: str) -> Belief:
        return Belief.at(self.families[name], self.naturals(self.current())[name])

    @property
    def data(self) -> dict[str, tuple[tf.Tensor, ...]]:
        """The arrays [N, ...] of every factor."""
        return {key: factor.data for key, factor in self.factors.items()}

    def factors_of(self, name: str) -> list[str]:
        """The names of the factors of a variable."""
        return [key for key, factor in self.factors.items() if name in factor.neighbours]

    def in_plate(self, key: str) -> bool:
        """True for a product over observations, of which minibatches see a part."""
        return bool(self.factors[key].data or self.factors[key].local)

    def current(self) -> Messages:
        """The messages as tensors."""
        return {
            key: {
                name: tuple(tf.convert_to_tensor(part) for part in parts)
                for name, parts in row.items()
            }
            for key, row in self.messages.items()
        }

    def assign(self, messages: Messages) -> None:
        """Replace all messages by tensors of the same shapes."""
        tf.nest.map_structure(
            lambda variable, value: variable.assign(value), self.messages, messages
        )

    def naturals(self, messages: Messages) -> dict[str, Natural]:
        """Natural parameter lambda_k of every variable, the sum of its messages."""
        return {
            name: tuple(
                tf.add_n(parts)
                for parts in zip(*[messages[key][name] for key in self.factors_of(name)])
            )
            for name in self.families
        }

    def elbo(self, seed: int = 0) -> tf.Tensor:
        """F = sum_e E_q log f_e + sum_k H[q_k] in nats, a scalar; with sampled factors an
        estimate.
        """
        return self.bound(
            self.naturals(self.current()), self.data, tf.constant([seed, 0], tf.int32)
        )

    def bound(self, naturals: Mapping[str, Natural], data: Rows, seed: tf.Tensor) -> tf.Tensor:
        """The bound F in nats, a scalar, at natural parameters of every variable, by name.

        :param data: of each factor, all or some rows.
        :param seed: [2], of sampled factors.
        """
        beliefs = {
            name: Belief.at(family, naturals[name]) for name, family in self.families.items()
        }
        entropies = [tf.reduce_sum(belief.entropy()) for belief in beliefs.values()]
        return tf.add_n([*self.expected(beliefs, data, seed).values(), *entropies])

    def expected(
        self, beliefs: Mapping[str, Belief], data: Rows, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """E_q log f_e per factor, scalars in nats, for rows [B, ...]; seed [2] of the draws."""
        return {
            key: factor.expected(
                [beliefs[name] for name in factor.neighbours], data[key], self._seed(key, seed)
            )
            for key, factor in self.factors.items()
        }

    def outgoing(
        self,
        key: str,
        naturals: Mapping[str, Natural],
        to: Sequence[str],
        data: Sequence[tf.Tensor],
        seed: tf.Tensor,
    ) -> dict[str, Natural]:
        """The messages of factor `key` to its neighbours `to`: gradients of E_q log f in mu.

        Parts written in lambda are multiplied by the inverse Fisher matrix.

        :param naturals: of every variable, by name.
        :param data: rows of the factor's data [B, ...].
        :param seed: [2], of a sampled factor.
        """
        # (C32), by (C1) where the expectation is written in lambda
        factor = self.factors[key]
        beliefs = [Belief.at(self.families[name], naturals[name]) for name in factor.neighbours]
        wanted = {name: belief for name, belief in zip(factor.neighbours, beliefs) if name in to}
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for belief in wanted.values():
                tape.watch([belief.natural, belief.expectation])
            value = factor.expected(beliefs, data, self._seed(key, seed))
        if value.shape.rank != 0:
            raise DataError(
                f"the expectation of the factor '{key}' has shape {tuple(value.shape)}; it must be"
                " a scalar: sum it over all rows."
            )
        found = tape.gradient(
            value, {name: (q.natural, q.expectation) for name, q in wanted.items()}
        )
        messages = {}
        for name, belief in wanted.items():
            family, (explicit, implicit) = belief.family, found[name][::-1]
            if all(part is None for part in (*explicit, *implicit)):
                raise DataError(
                    f"the factor '{key}' does not depend on its neighbour '{name}': use the belief,"
                    f" or draws, of '{name}' in it, or leave it out of the neighbours."
                )
            messages[name] = family.tangent(_filled(explicit, belief))
            if any(part is not None for part in implicit):
                solved = family.fisher_solve(belief.natural, _filled(implicit, belief))  # (C1)
                messages[name] = tuple(a + b for a, b in zip(messages[name], solved))
        return messages

    def _seed(self, key: str, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.fold_in(seed, list(self.factors).index(key))

    def _check_names(self) -> None:
        for key, factor in self.factors.items():
            for name in factor.neighbours:
                if name not in self.families:
                    raise DataError(
                        f"the factor '{key}' has the neighbour '{name}', which is no variable;"
                        f" there are {', '.join(map(repr, self.families))}."
                    )
                if name in self.local and name not in factor.local:
                    raise DataError(
                        f"the variable '{name}' has a row for each observation in one factor but"
                        f" not in '{key}': name it in local= there too, or in none."
                    )
                if factor.samples is not None and not self.families[name].reparameterized:
                    raise DataError(
                        f"the factor '{key}' samples '{name}', and draws of a"
                        f" {self.families[name].name} have no gradients: use a Factor with the"
                        " expectation as a function of the belief."
                    )
        for name in self.families:
            if not self.factors_of(name):
                raise DataError(
                    f"the variable '{name}' has no factor; give it a prior, or leave it out."
                )

    def _check_sizes(self, variables: Mapping[str, Belief]) -> int | None:
        sizes = {
            f"the factor '{key}'": f.data[0].shape[0] for key, f in self.factors.items() if f.data
        }
        for name in sorted(self.local):
            first = variables[name].natural[0]
            batch = first.shape.rank - variables[name].family.ranks[0]
            sizes[f"the variable '{name}'"] = first.shape[0] if batch else 0
        if len(set(sizes.values())) > 1:
            raise DataError(
                "all data are rows of the same observations, and "
                + ", ".join(f"{owner} has {size}" for owner, size in sizes.items())
                + "; let a factor close over arrays that are not."
            )
        return next(iter(sizes.values()), None)


def _filled(parts: tuple, belief: Belief) -> Natural:
    return tuple(
        tf.zeros_like(like) if part is None else part for part, like in zip(parts, belief.natural)
    )
