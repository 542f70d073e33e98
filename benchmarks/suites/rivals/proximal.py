"""The proximal-gradient method of Khan et al. (2016, UAI), PG-SVI, as an update of the sites of a
`CVIGP`.

A step replaces the likelihood term of the bound by its tangent in the mean and the covariance of
q(f), and maximises that less the divergence from the prior and 1 / beta times the divergence from
the present q, (C63). With rho = beta / (1 + beta) and slopes g, h, which a minibatch estimates, it
consists of two inferences in a conjugate model:

    u' = mean at the sites ((1 - rho) nu + rho g, (1 - rho) tau) nu <- (1 - rho) nu + rho (g - 2 h
    u'),   tau <- (1 - rho) tau - 2 rho h                                      (C65)

Conjugate computation, (C13), has the present mean u in the place of u', and one inference.
"""

from __future__ import annotations

__all__ = ["ProximalGradient"]

from functools import partial

import tensorflow as tf

from gpflow_decoupled.covariances.latents import gram
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from gpflow_decoupled.optimizers.ascent import StepReport
from gpflow_decoupled.optimizers.conjugate_computation import all_finite, write_sites
from gpflow_decoupled.optimizers.data_passes import by_quadrature, by_sampling


class ProximalGradient:
    """Steps of PG-SVI on one model, at its present hyperparameters; as many negative precisions as
    the posterior allows.

    :param model: the model, which has its own data.
    :param step_size: rho in (0, 1].
    :param samples: draws for the expectations of each observation; None integrates by quadrature.
    :param seed: of the draws.
    :raises DataError: for a step size or a number of samples outside its range.

    Cost: two factorisations per step, 8/3 N^3 for each latent function. Example::

        rule = ProximalGradient(model, 0.1, samples=10)
        for step, rows in enumerate(batches):
            rule.minimize(rows, step)
    """

    def __init__(
        self, model: CVIGP, step_size: float = 0.5, *, samples: int | None = None, seed: int = 0
    ) -> None:
        self._rule = ConjugateComputation(step_size, samples=samples, seed=seed)  # checks these
        self.model, self.step_size, self.samples, self.seed = model, step_size, samples, seed
        self._K = gram(model.kernel, model.basis.points)

    def minimize(self, rows: tf.Tensor | None = None, step: int | tf.Tensor = 0) -> StepReport:
        """One step; safe inside `tf.function`.

        :param rows: [B], the indices of a minibatch without replacement, whose slopes count N/B
            times; None takes all data.
        :param step: its number, which sets the draws.
        :return: whether the step was taken, and whether it was shortened so that a posterior
        exists."""
        model, basis = self.model, self.model.basis
        nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        rows = tf.range(basis.num_data) if rows is None else tf.convert_to_tensor(rows)
        # 1) the slopes at the present q
        state = basis.state_at(self._K, nu, tau)
        u, v = tf.gather(state.mean, rows), tf.gather(state.variance, rows)
        batch = tuple(tf.gather(array, rows) for array in model.data)
        seed = tf.convert_to_tensor([self.seed, step], tf.int32)
        if self.samples is None:
            found = by_quadrature(model, u, v, batch)
        else:
            found = by_sampling(model, u, v, batch, self.samples, seed)
        scale = tf.cast(basis.num_data, nu.dtype) / tf.cast(tf.shape(rows)[0], nu.dtype)
        g, h = (
            tf.scatter_nd(rows[:, None], scale * part, tf.shape(nu)) for part in (found.g, found.h)
        )
        # 2) how far the covariance can go
        wanted = tf.constant(self.step_size, nu.dtype)
        rho, ok = self._rule.feasible(partial(basis.exists, self._K), tau, -2.0 * h, wanted)
        # 3) the mean, and the sites of mean and covariance
        nu, tau = (1.0 - rho) * nu + rho * g, (1.0 - rho) * tau
        ahead = basis.state_at(self._K, nu, tau)  # (C65)
        new = [nu - 2.0 * rho * h * ahead.mean, tau - 2.0 * rho * h]  # (C65)
        ok = state.ok & ahead.ok & ok & all_finite(found.value)
        return write_sites(basis, new, ok, tf.cast(rho < wanted, tf.int32), tf.constant(0))
