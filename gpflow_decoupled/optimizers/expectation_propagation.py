"""Expectation propagation (EP), with parallel updates."""

from __future__ import annotations

__all__ = ["ExpectationPropagation"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ..bases.site import SiteState
from ..compilation import Compiled
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import unusable_observation
from ..errors import DataError, NumericalError
from ..inputs import check_rate, check_whole, is_number
from ..likelihoods.facts import name_of
from ..models import CVIGP
from ..models.families import require_model
from ..summaries import settings_line, short_repr
from ..user_warnings import warn_user
from .ascent import STUCK, DampedUpdate, EvidenceResult, Point, Probe
from .tilted import Densities, Tilted, attainable, has_closed_form, tilted

# q(f) is the prior times sites exp(nu_n u_n - tau_n u_n^2 / 2), u = f - m_0. A pass, for all sites
# at once:
#
# 1. Cavities: marginals N(u_n, v_n) of q without the share alpha of their site, (C50):
#
#      1 / v_c = 1 / v - alpha tau,   m_c / v_c = u / v - alpha nu
#
# 2. Mean u^ and variance v^ of the cavities times p(y_n | f_n)^alpha (C51).
# 3. Sites with these moments, of which the share rho = 1 - damping is taken, (C52):
#
#      nu <- (1 - rho) nu + rho (u^ / v^ - m_c / v_c) / alpha
#      tau <- (1 - rho) tau + rho (1 / v^ - 1 / v_c) / alpha


_LEAST_SHARE = 1e-9
"""Least v / v_c of a usable cavity; below, all its digits are round-off."""
_PATIENCE, _PROGRESS = 8, 0.8
"""Halve the step after this many passes whose change stays above this share of its least."""
_ACCURATE = 1e-3
"""Nats by which doubled nodes may change the estimate without a warning."""


class ExpectationPropagation:
    """Expectation propagation for `models.CVIGP`, at fixed hyperparameters.

    For likelihoods of one latent (Minka 2001; Rasmussen & Williams 2006, section 3.6; power EP:
    Minka 2004), and for `CategoricalLogit` with power 1, with a site per class. Variances and
    evidence are often more accurate than `ConjugateComputation`'s; convergence is not guaranteed.
    Cost per pass and latent: 4/3 N^3, and 3 N times `nodes` log densities.

    :param power: alpha in (0, 1]: 1 is EP; small powers approach conjugate computation.
    :param damping: share of the old sites that a pass keeps, in [0, 1). A pass without a posterior
        is undone and halved.
    :param nodes: of the quadrature of tilted moments; unused for the probit with power 1.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliProbit())
        result = ExpectationPropagation().run(model)
        print(result.evidence_estimate)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, power: float = 1.0, damping: float = 0.2, *, nodes: int = 200) -> None:
        check_rate(1.0, power=power)
        if not is_number(damping) or not 0.0 <= damping < 1.0:
            raise DataError(
                f"damping={short_repr(damping)} must be a number of at least 0 and below 1, the"
                " share of the old sites that is kept."
            )
        check_whole(20, nodes=nodes)
        self.power, self.damping, self.nodes = float(power), float(damping), int(nodes)

    def __repr__(self) -> str:
        return settings_line(self)

    def run(
        self, model: CVIGP, *, steps: int = 500, tolerance: float = 1e-8, progress: bool = False
    ) -> EvidenceResult:
        """Repeat passes until all marginals have the tilted moments.

        :param steps: most passes, undone ones included.
        :param tolerance: stop when no site would move its marginal's mean by more standard
            deviations, nor its variance by a larger share.
        :param progress: show a progress bar.
        """
        require_model("ExpectationPropagation.run", model, CVIGP)
        check_whole(1, steps=steps)
        check_rate(tolerance=tolerance)
        densities = self._densities(model)
        bar = tqdm(range(steps), disable=not progress, desc="EP")
        probe = self.compiled_probe(model, densities)
        climber = _SitePasses(
            self,
            model,
            lambda sites, _: probe(*sites),
            attainable(tolerance, model.float_type),
            bar,
            evidence_estimate="evidence",
        )
        end = climber.run(
            *model.sites, failure=lambda: unusable_observation(model, None) or _failure()
        )
        found, skipped = end.now.probe, int(end.now.probe.dropped)
        reason = "no step, however short, leaves a posterior" if end.reason == STUCK else end.reason
        result = climber.record.finish(
            EvidenceResult,
            float(found.elbo),
            f"the cavities of {skipped} sites have no variance" if skipped else reason,
            evidence_estimate=float(found.evidence),
            shortened_steps=climber.record.shortened,
            skipped_sites=climber.record.dropped,
        )
        if not has_closed_form(densities, self.power):
            self._check_nodes(model, densities, result.evidence_estimate)
        warn_of_quadrature(model, result.elbo)
        return result

    def compiled_probe(
        self, model: CVIGP, densities: Densities | None = None
    ) -> Callable[[tf.Tensor, tf.Tensor], Probe]:
        """Return a compiled pass, a function of nu, tau [N, L], at the present hyperparameters.

        Raises the errors of `run`.
        """
        labels = self._densities(model) if densities is None else densities
        K = model.basis.prior(model.kernel)
        return Compiled(
            lambda nu, tau: self._probe(model, labels, model.basis.state_at(K, nu, tau), self.nodes)
        )

    def _densities(self, model: CVIGP) -> Densities:
        densities = Densities(model, "ExpectationPropagation")
        if densities.couples and self.power != 1.0:
            raise DataError(
                f"power={self.power:g} has no tilted moments for classes: use"
                " ExpectationPropagation(power=1.0), or ConjugateComputation."
            )
        return densities

    def _probe(self, model: CVIGP, densities: Densities, state: SiteState, nodes: int) -> Probe:
        at_observations: tuple[tf.Tensor, ...] = state.nu, state.tau, state.mean, state.variance
        nu, tau, m, v = at_observations
        # 1) the cavities
        share = 1.0 - self.power * tau * v
        proper = densities.in_whole_labels((share > _LEAST_SHARE) & (v > 0.0))
        v_c = tf.where(proper, v / tf.where(proper, share, 1.0), 1.0)  # (C50)
        # (C50)
        m_c = tf.where(proper, (m - self.power * nu * v) / tf.where(proper, share, 1.0), 0.0)
        # 2) the tilted distributions
        found = tilted(densities, self.power, m_c, v_c, nodes)
        growth = 1.0 + v_c * found.second  # v^ / v_c
        finite = (
            tf.math.is_finite(found.log_mass)
            & tf.math.is_finite(found.first)
            & tf.math.is_finite(growth)
        )
        good = densities.in_whole_labels(proper & finite & (growth > 0.0))
        growth = tf.where(good, growth, 1.0)
        # 3) where the sites go
        goal_nu = (found.first - m_c * found.second) / (self.power * growth)  # (C52)
        goal_tau = -found.second / (self.power * growth)  # (C52)
        moved = tf.abs(m_c + v_c * found.first - m) / tf.sqrt(tf.where(good, v, 1.0))  # (C51)
        widened = tf.abs(v_c * growth / tf.where(good, v, 1.0) - 1.0)  # (C51)
        change = tf.reduce_max(tf.where(good, tf.maximum(moved, widened), 0.0))
        expected = tf.reduce_sum(model.variational_expectations(m, v, model.data))
        evidence = model.basis.log_partition(state) + self._corrections(found, m, v, m_c, v_c, good)
        ok = state.ok & tf.reduce_all((v > 0.0) & tf.math.is_finite(m) & (finite | ~proper))
        skipped = tf.math.count_nonzero(~good, dtype=tf.int32)
        goal_nu, goal_tau = tf.where(good, goal_nu, nu), tf.where(good, goal_tau, tau)
        elbo = expected - model.basis.prior_kl(state)
        return Probe(elbo, ok, (goal_nu, goal_tau), skipped, change, evidence)

    def _corrections(
        self,
        found: Tilted,
        m: tf.Tensor,
        v: tf.Tensor,
        m_c: tf.Tensor,
        v_c: tf.Tensor,
        good: tf.Tensor,
    ) -> tf.Tensor:
        v = tf.where(good, v, 1.0)
        of_sites = 0.5 * (tf.square(m) / v - tf.square(m_c) / v_c + tf.math.log(v / v_c))
        total = tf.reduce_sum(tf.where(good, found.log_mass - of_sites, 0.0)) / self.power  # (C53)
        return tf.where(tf.reduce_all(good), total, tf.constant(np.nan, total.dtype))

    def _check_nodes(self, model: CVIGP, densities: Densities, evidence: float) -> None:
        basis = model.basis
        state = basis.factor(model.kernel)
        finer = float(self._probe(model, densities, state, 2 * self.nodes).evidence)
        if abs(finer - evidence) > max(_ACCURATE, 1e-6 * abs(evidence)):
            warn_user(
                f"The tilted moments of {name_of(model.likelihood)} are not accurate: with"
                f" twice the {self.nodes} nodes the estimate of the log evidence is {finer:.6g}"
                f" nats and not {evidence:.6g}. The likelihood is narrow beside its cavities, or"
                f" has a kink: use ExpectationPropagation(nodes={4 * self.nodes}).",
            )


class _SitePasses(DampedUpdate):
    share, least, waited = 1.0, np.inf, 0

    def size_at(self, step: int) -> float:
        return self.share * (1.0 - self.rule.damping)

    def write(self, point: Point) -> None:
        """Write the sites, and halve the step size where the change has not fallen for long."""
        super().write(point)
        if point.change < _PROGRESS * self.least:
            self.least, self.waited = point.change, 0
            return
        self.waited += 1
        if self.waited >= _PATIENCE:
            self.share, self.least, self.waited = 0.5 * self.share, point.change, 0
            self.record.shortened += 1


def _failure() -> NumericalError:
    return NumericalError(
        "Expectation propagation cannot start at the model's sites: K^-1 + W is not positive"
        " definite, or a tilted distribution has no moments. Set the sites nu and tau of the basis"
        " to zero, or use a kernel with a smaller variance.",
        matrix="K^-1 + W",
    )
