"""Where the affine-independent ascent starts: the best Gaussian q, its rotation, first shapes."""

from __future__ import annotations

__all__ = [
    "AffineResult", "GaussianProblem", "GaussianSolution", "StageRecord", "StagedResult",
    "Start", "climb", "edgeworth_shapes", "edgeworth_start", "expected_sites", "moments_of",
    "stage_record",
]  # fmt: skip

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from ..compilation import Compiled
from ..distributions import Base, NormalBase
from ..expectations.fourier import Integration, SiteGroup, integrate
from ..expectations.projections import Projections, tiny
from ..lbfgs import Objective, lbfgs_ascent, settled
from .ascent import Recorder, RunResult

# ---
# Result of a run of affine-independent inference.


StageRecord = Callable[[float, int], None]
"""Records a step: the best bound so far in nats, and the evaluations since the last step."""


@dataclass(kw_only=True, repr=False)
class StagedResult(RunResult):
    """A run that begins with the best Gaussian q; `history` adds "evaluations" [steps]."""

    gaussian_elbo: float
    """The bound of the best Gaussian q, in nats."""

    @property
    def gain(self) -> float:
        """`elbo` minus the bound of the best Gaussian q, in nats."""
        return self.elbo - self.gaussian_elbo

    @property
    def evaluations(self) -> int:
        """Evaluations of the bound and its gradient, in all stages."""
        return int(np.sum(self.history["evaluations"]))


@dataclass(kw_only=True, repr=False)
class AffineResult(StagedResult):
    """Result of `AffineIndependentAscent.run`.

    `history` has arrays [steps]: "step", "seconds", "elbo" (the stage's best bound so far, in
    nats), "evaluations" and "stage" (0 Gaussian, 1 affine-independent).

    Example::

        result = AffineIndependentAscent().run(model)
        print(result)                        # bounds, evaluations, seconds, why it stopped
        print(result.gain, "nats above the best Gaussian")
    """

    tracing_seconds: float
    """Part of `seconds` until the compiled functions had run once."""
    gaussian_seconds: float
    """Part of `seconds` of the Gaussian stage, without compilation."""
    affine_elbo: float
    """Bound of the best affine-independent q, in nats; below `gaussian_elbo` at most for a family
    without the normal distribution, or fixed shapes.
    """
    kept: str
    """The q left in the model: "affine", or "gaussian" if its bound is greater."""
    predicted_gain: float
    """Predicted gain over the Gaussian bound, in nats; NaN without a rule for the base."""
    resolution: float
    """Change of the bound with doubled frequencies or grid points, in nats."""
    turns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The bound after each turn, in nats; empty unless in turns."""

    def __str__(self) -> str:
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; affine {self.affine_elbo:.6g}, Gaussian"
            f" {self.gaussian_elbo:.6g}), {self.evaluations} evaluations in {self.seconds:.2f} s,"
            f" stopped: {self.reason}"
        )


def stage_record(recorder: Recorder, stage: int) -> StageRecord:
    """Return a stage's record function, for the columns "elbo", "evaluations" and "stage"."""

    def record(elbo: float, evaluations: int) -> None:
        recorder.append(len(recorder), elbo=elbo, evaluations=evaluations, stage=stage)

    return record


def climb(
    function: Objective,
    start: np.ndarray,
    record: StageRecord,
    tolerance: float,
    max_evaluations: int,
    low: np.ndarray | None = None,
) -> tuple[np.ndarray, float, str]:
    """Maximise from `start` [n]; return the best point [n], its value, the reason for stopping.

    :param function: returns the bound in nats and its gradient.
    """
    found = lbfgs_ascent(
        function,
        start,
        settled(tolerance),
        max_evaluations,
        low=low,
        record=record,
        advice="scale the inputs, or use a narrower prior; with a likelihood like Poisson's, a base"
        " distribution with light tails, for example 'skew_normal'.",
        matrix="A",
        gradient_tolerance=1e-9,
    )
    return found.x, found.value, found.reason


# ---
# Initial rotation and shapes, by an Edgeworth expansion.


# A rotation A Q leaves the Gaussian N(b, A A^T) as is, but not q for non-normal v_d. To leading
# order the bound depends on the skewness gamma_d of each v_d by (A18)
#
#   gamma_d s_d / 6 - gamma_d^2 / 12,   s_d = sum_n alpha_nd^3 E g_n'''(y_n)
#
# with alpha = X A and E under the Gaussian. Q maximises the gain sum_d s_d^2 / 12 at gamma_d = s_d
# (A19). Symmetric bases use excess kurtosis, fourth powers and derivatives, 24 and 48 for 6 and 12.


_SWEEPS = 30  # of singular value decompositions from one start
_SAME = 1e-6  # share by which a sweep that is not the last one raises the gain
_ROTATIONS = 4  # starts, because of local maxima
_NODES = 1001  # of a trapezoid rule over 9 deviations on either side
_LARGEST_SKEW, _LEAST_SKEW = 0.9, 0.02  # skew normals end at 0.995, and at 0 no gradient leads on


class Start(NamedTuple):
    """A root of the Gaussian covariance, and shapes."""

    A: np.ndarray
    """The rotated root [D, D]."""
    theta: np.ndarray
    """Shapes [k, P] of the first k variables."""
    gain: float
    """Predicted gain over the Gaussian bound (A19), in nats; NaN for a base without a rule."""


def edgeworth_start(
    groups: list[SiteGroup],
    b: np.ndarray,
    A: np.ndarray,
    base: Base,
    rotate: bool,
    k: int | None = None,
) -> Start:
    """Return rotated root and shapes at the Gaussian optimum N(b, A A^T), b [D], A [D, D].

    :param rotate: rotate A; False at most permutes its columns.
    :param k: number of non-normal variables, default all; their columns come first.
    """
    k = len(b) if k is None else k
    if base.name == "normal":
        return Start(A, base.start(k).numpy(), 0.0)
    expansion = _Expansion.about(groups, b, A, base, k)
    Q = _rotation(expansion) if rotate else _sorted(expansion)
    return Start(A @ Q, *_matched(base, expansion.slopes(Q[:, :k])))


def edgeworth_shapes(
    groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, base: Base, k: int
) -> np.ndarray:
    """Return shapes [k, P] for the first k columns of A [D, D], without rotation."""
    return _matched(base, _Expansion.about(groups, b, A, base, k).slopes(np.eye(len(b))[:, :k]))[0]


class _Expansion(NamedTuple):
    """Leading terms (A18) at a Gaussian, for k variables of any families."""

    alpha: np.ndarray
    """Projections [N, D]."""
    weights: np.ndarray
    """Per variable, expectations of the third or fourth derivatives of the g_n, [N, k]."""
    orders: np.ndarray
    """3 for skewed variables, 4 for symmetric ones, [k]."""
    worth: np.ndarray
    """Gain per square of s_d in nats, [k]: 1/12, 1/48, or 0 for a normal variable."""

    @classmethod
    def about(
        cls, groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, base: Base, k: int
    ) -> _Expansion:
        families = [part for part, size in base.parts(k) for _ in range(size)]
        orders = np.array([4 if part.symmetric else 3 for part in families])
        found = {order: _derivatives(groups, b, A, order) for order in set(orders.tolist())}
        alpha = found[orders[0]][0]
        weights = np.stack([found[order][1] for order in orders], axis=1)
        worth = np.array([
            0.0 if part.name == "normal" else 1.0 / 48.0 if part.symmetric else 1.0 / 12.0
            for part in families
        ])  # (A19)  # fmt: skip
        return cls(alpha, weights, orders, worth)

    def slopes(self, directions: np.ndarray) -> np.ndarray:
        return np.sum(self.weights * _power(self.alpha @ directions, self.orders), axis=0)


def _power(x: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """x [N, k] to the powers [k], each 2, 3 or 4; 50 times faster than NumPy's."""
    square = x * x
    return np.choose(orders - 2, [square, square * x, square * square])


def _derivatives(
    groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray]:
    # By parts: E g^(order)(y) = E g(y) He(z) / sigma^order, He the Hermite polynomial.
    z = np.linspace(-9.0, 9.0, _NODES)
    hermite = z**3 - 3.0 * z if order == 3 else z**4 - 6.0 * z**2 + 3.0
    rule = np.exp(-0.5 * z**2) * hermite * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    found = []
    for group in groups:
        alpha = group.features.numpy().astype(float) @ A
        noise = 0.0 if group.noise is None else group.noise.numpy().astype(float)
        sigma = np.sqrt(np.maximum(np.sum(alpha**2, axis=1) + noise, 1e-300))
        m = group.offset.numpy() + group.features.numpy() @ b
        y = tf.constant(m[:, None] + sigma[:, None] * z, group.features.dtype)
        columns = [part[:, None] for part in group.site.parameters]
        g = group.site.smooth(y, *columns)
        if group.site.kink is not None:
            place, slope = group.site.kink(*columns)
            g += slope * tf.abs(y - place)
        with np.errstate(all="ignore"):  # rows whose y is constant are set to zero below
            found.append((alpha, g.numpy() @ rule / sigma**order))  # (A18)
    alphas, weights = (np.concatenate(part) for part in zip(*found))
    return alphas, np.where(np.isfinite(weights), weights, 0.0)


def _sorted(expansion: _Expansion) -> np.ndarray:
    alpha, weights, orders, worth = expansion
    D, k = alpha.shape[1], len(orders)
    places_of = zip(*np.unique(orders, return_index=True))
    slopes = {order: weights[:, place] @ alpha**order for order, place in places_of}
    gains = np.stack([share * slopes[order] ** 2 for order, share in zip(orders, worth)])
    if np.all(gains == gains[0]):
        places = np.arange(D) if k == D else np.argsort(-gains[0], kind="stable")
    else:
        first = linear_sum_assignment(np.nan_to_num(gains), maximize=True)[1]
        places = np.concatenate([first, np.setdiff1d(np.arange(D), first)])
    return np.eye(D)[:, places]


def _rotation(expansion: _Expansion) -> np.ndarray:
    """Return the orthogonal Q [D, D] with the greatest gain (A19) in k columns of alpha Q."""
    # Repeats singular value decompositions from several starts, because of local maxima.
    alpha, weights, orders, worth = expansion
    D, k, rng = alpha.shape[1], len(orders), np.random.default_rng(0)
    best, best_value = np.eye(D)[:, :k], -np.inf
    for start in range(_ROTATIONS):
        Q = _sorted(expansion)[:, :k] if start == 0 else np.linalg.qr(rng.normal(size=(D, k)))[0]
        last = -np.inf
        for _ in range(_SWEEPS):
            s = expansion.slopes(Q)
            gain = float(np.sum(worth * s**2))
            if gain - last <= _SAME * gain:
                break
            last = gain
            slope = weights * _power(alpha @ Q, orders - 1) * (orders * worth * s)
            left, _, right = np.linalg.svd(alpha.T @ slope, full_matrices=False)
            Q = left @ right
        value = float(np.sum(worth * expansion.slopes(Q) ** 2))
        if value > best_value:
            best, best_value = Q, value
    return np.concatenate([best, np.linalg.svd(best)[0][:, k:]], axis=1)


def _matched(base: Base, s: np.ndarray) -> tuple[np.ndarray, float]:
    """Shapes [k, P] of skewnesses or excess kurtoses s [k], and their gain in nats (A19)."""
    theta, gain, first = base.start(len(s)).numpy(), 0.0, 0
    for part, size in base.parts(len(s)):
        own = slice(first, first + size)
        theta[own, : part.num_shapes], more = _shapes_and_gain(part, s[own])
        gain, first = gain + more, first + size
    return theta, gain


def _shapes_and_gain(base: Base, s: np.ndarray) -> tuple[np.ndarray, float]:
    """Shapes [k, P] and gain of one family; NaN without a rule."""
    if base.name == "normal":
        return base.start(len(s)).numpy(), 0.0
    if base.name == "skew_normal":
        # never zero, where the gradient vanishes
        sign, size = np.where(s < 0.0, -1.0, 1.0), np.clip(np.abs(s), _LEAST_SKEW, _LARGEST_SKEW)
        c = np.cbrt(2.0 * size / (4.0 - math.pi))
        delta = sign * math.sqrt(0.5 * math.pi) * c / np.sqrt(1.0 + c**2)
        return (delta / np.sqrt(1.0 - delta**2))[:, None], float(np.sum(s**2) / 12.0)  # (A19)
    if base.name == "generalized_normal":
        p = np.linspace(1.0, 4.0, 301)
        kurtosis = np.exp(gammaln(5.0 / p) + gammaln(1.0 / p) - 2.0 * gammaln(3.0 / p)) - 3.0
        return np.interp(-s, -kurtosis, p)[:, None], float(np.sum(s**2) / 48.0)
    if base.name == "student_t":
        degrees = np.clip(4.0 + 6.0 / np.maximum(s, 0.1), 4.5, 64.0)
        return degrees[:, None], float(np.sum(np.maximum(s, 0.0) ** 2) / 48.0)
    return base.start(len(s)).numpy(), float("nan")


# ---
# The best Gaussian q, by steps (C9) and L-BFGS.


_STEPS = 40  # (C9), at most; L-BFGS goes on from there
_HALVINGS = 8  # of one step
_LEAST_DIAGONAL = 1e-10
"""Lower limit of L's diagonal."""


class GaussianSolution(NamedTuple):
    """A Gaussian q: its mean b [D], a lower root of its covariance [D, D], its bound in nats."""

    b: np.ndarray
    root: np.ndarray
    bound: float


class GaussianProblem:
    """The bound of a Gaussian q in its mean b and root L: (A2) with A = L and normal v.

    Features of the sites are [N, D]; `gaussian` [D] is 1 for a Gaussian prior, 0 where the prior is
    a site.

    :param compile: False is faster for one evaluation.
    """

    def __init__(
        self,
        groups: list[SiteGroup],
        gaussian: npt.ArrayLike,
        constant: float,
        integration: Integration,
        compile: bool = True,
    ) -> None:
        self.gaussian, self.constant = np.asarray(gaussian), constant
        self.dtype = groups[0].features.dtype
        self.features = np.concatenate([group.features.numpy() for group in groups]).astype(float)
        self.offset = np.concatenate([group.offset.numpy() for group in groups])
        noise = [0.0 * g.offset.numpy() if g.noise is None else g.noise.numpy() for g in groups]
        self.noise = np.concatenate(noise)
        integration = integration._replace(route="auto")
        sizes = [len(group.offset) for group in groups]

        def sites(m: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([m, v])
                parts = zip(tf.split(m, sizes), tf.split(v, sizes), groups)
                value = tf.add_n(
                    [tf.reduce_sum(expected_sites(*part, integration)) for part in parts]
                )
            return value, *tape.gradient(value, [m, v])

        self._sites = Compiled(sites) if compile else sites
        began = time.perf_counter()
        self.at(np.zeros(self.features.shape[1]), np.eye(self.features.shape[1]))
        self.tracing_seconds = time.perf_counter() - began
        """Seconds until the compiled expectations had run once."""

    def at(self, b: np.ndarray, root: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound in nats, and the sites' derivatives [N] in means and variances of f."""
        moments = (tf.constant(part, self.dtype) for part in self._moments(b, root))
        value, g, h = self._sites(*moments)
        moment = b**2 + np.sum(root**2, axis=1)
        divergence = 0.5 * (np.sum(self.gaussian * moment) - len(b))
        free = np.sum(1.0 - self.gaussian)
        volume = np.sum(np.log(np.abs(np.diag(root)))) + 0.5 * free * np.log(2.0 * np.pi)
        bound = float(value) + self.constant + volume - divergence  # (A2)
        return bound, g.numpy().astype(float), h.numpy().astype(float)

    def value_and_gradient(
        self, b: np.ndarray, root: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound and its gradient in b [D] and the lower triangle of L [D, D]: (A3)."""
        value, g, h = self.at(b, root)
        d_b = self.features.T @ g - self.gaussian * b
        d_root = 2.0 * self.features.T @ (h[:, None] * (self.features @ root))
        d_root -= self.gaussian[:, None] * root
        return value, d_b, np.tril(d_root) + np.diag(1.0 / np.diag(root))  # (A3)

    def solve(
        self, tolerance: float, max_evaluations: int, record: StageRecord
    ) -> GaussianSolution:
        """Find the optimum, from a narrow q at the prior mean."""
        # points where something overflows are refused
        with np.errstate(over="ignore", invalid="ignore"):
            b, root = self._approach(tolerance, record)
            return self._climb(b, root, tolerance, max_evaluations, record)

    def at_sites(self, nu: np.ndarray, tau: np.ndarray) -> GaussianSolution:
        """The prior times sites exp(nu f - tau f^2 / 2), f without offset, both [N]."""
        precision = np.diag(self.gaussian) + self.features.T @ (tau[:, None] * self.features)
        b, root = moments_of(self.features.T @ nu, precision)
        return GaussianSolution(b, root, self.at(b, root)[0])

    def start_moments(self, rows: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f at `solve`'s start, first `rows` sites, [rows, 1] each."""
        mean, variance = self._moments(*moments_of(*self._start()))
        return tuple(tf.constant(part[:rows, None], self.dtype) for part in (mean, variance))

    def _moments(self, b: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance [N] of every y."""
        variance = np.sum((self.features @ root) ** 2, axis=1) + self.noise
        return self.offset + self.features @ b, variance

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        D = self.features.shape[1]  # no expectation overflows where q is so narrow
        return np.zeros(D), np.diag(self.gaussian + D * np.mean(self.features**2, axis=0) + 1e-3)

    def _climb(
        self,
        b: np.ndarray,
        root: np.ndarray,
        tolerance: float,
        max_evaluations: int,
        record: StageRecord,
    ) -> GaussianSolution:
        D = len(b)
        places = np.tril_indices(D)

        def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lower = np.zeros([D, D])
            lower[places] = x[D:]
            return x[:D], lower

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_b, d_root = self.value_and_gradient(*unpacked(x))
            return value, np.concatenate([d_b, d_root[places]])

        on_diagonal = places[0] == places[1]
        low = np.concatenate([np.full(D, -np.inf), np.where(on_diagonal, _LEAST_DIAGONAL, -np.inf)])
        start = np.concatenate([b, root[places]])
        best, bound, _ = climb(value_and_gradient, start, record, tolerance, max_evaluations, low)
        return GaussianSolution(*unpacked(best), bound)

    def _approach(self, tolerance: float, record: StageRecord) -> tuple[np.ndarray, np.ndarray]:
        """Take steps (C9) while they raise the bound; return mean [D] and root [D, D]."""
        now, phi = self._start(), self.features
        b, root = moments_of(*now)
        value, g, h = self.at(b, root)
        record(value, 1)
        for _ in range(_STEPS):
            # the prior times each site as a Gaussian, of which negative precisions are clipped
            tau = np.maximum(-2.0 * h, 0.0)
            aim = (
                phi.T @ (g + tau * (phi @ b)),
                np.diag(self.gaussian) + phi.T @ (tau[:, None] * phi),
            )
            # a step towards it, halved until the bound rises
            for halvings in range(_HALVINGS):
                rho = 0.5**halvings
                pair = tuple((1.0 - rho) * old + rho * new for old, new in zip(now, aim))  # (C9)
                try:
                    moments = moments_of(*pair)
                except np.linalg.LinAlgError:  # no covariance
                    continue
                found = self.at(*moments)
                if found[0] > value and all(np.all(np.isfinite(part)) for part in found):
                    break
            else:
                break
            record(found[0], 1 + halvings)
            gain, now, (b, root), (value, g, h) = found[0] - value, pair, moments, found
            if gain < tolerance:
                break
        return b, root


def moments_of(first: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [D] and lower root [D, D] of the covariance, from V^-1 m [D] and V^-1 [D, D]."""
    covariance = np.linalg.inv(precision)
    return covariance @ first, np.linalg.cholesky(0.5 * (covariance + covariance.T))


def expected_sites(
    m: tf.Tensor, v: tf.Tensor, group: SiteGroup, integration: Integration
) -> tf.Tensor:
    """E g_n(y_n) [N] in nats for y_n ~ N(m_n, v_n), m and v [N]."""
    root = tf.sqrt(tf.maximum(v, tiny(v)))
    y = Projections(root[:, None], m, tf.zeros([1, 0], m.dtype))
    return integrate(NormalBase(), y, group.site, integration)
