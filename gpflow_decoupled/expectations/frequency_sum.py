"""The route "frequency_sum": a Gaussian expectation plus a sum."""

# With N the Gaussian of the mean and variance of y, and k the Fourier transform of g'', (A11)
#
#   E g(y) = E_N g + 1/pi Re int_0^inf k(omega) (phi_N(omega) - phi_y(omega)) / omega^2 d omega
#
# where phi_y is the product of the characteristic functions of the alpha_d v_d.

from __future__ import annotations

__all__ = ["frequency_sum_expectation"]

import math

import numpy as np
import tensorflow as tf

from ..errors import DataError
from .axis_products import map_blocks
from .projections import Projections, Reach, Site, check_projections, rows_of
from .spectral import Transform, transform_of


def frequency_sum_expectation(
    characteristic: Transform,
    y: Projections,
    site: Site,
    R: Reach,
    T: int = 64,
    memory: float = 2.0**29,
    work: int = 12,
) -> tf.Tensor:
    """Return E g_n(y_n) [N] by (A11), differentiable in y's arrays and the site's parameters.

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    :param T: number of frequencies (A13). 64 give 1e-10 for light tails, R <= 10; T must grow in
        proportion to R.
    :param memory: bytes that `work` complex tensors [n, D, T] may take.
    """
    check_projections(y, site)
    transform, reference = site.kernel, site.gauss
    if transform is None or reference is None:
        raise DataError("This site has no transform: use the route 'spectral' or 'lattice'.")
    if T < 2:
        raise DataError(f"T={T}: the sum needs at least two frequencies, for example 64.")
    reach = tf.cast(R, y.alpha.dtype)

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        shift = beta if site.centre is None else beta - site.centre(*parameters)
        omega, weight, shift = _rule(site, shift, scale, parameters, reach, T)
        variance = tf.reduce_sum(tf.square(alpha), axis=1) + noise
        phi = transform_of(characteristic, alpha, None if y.noise is None else noise, omega, theta)
        gauss = tf.exp(-0.5 * variance[:, None] * tf.square(omega))
        kernel = (
            transform(omega, *(part[:, None] for part in parameters)) * weight / tf.square(omega)
        )
        phase = omega * shift[:, None]
        terms = tf.cos(phase) * (gauss - tf.math.real(phi))
        # symmetric densities have a real transform, and no sines
        if phi.dtype.is_complex:
            terms += tf.sin(phase) * tf.math.imag(phi)
        return (
            reference(beta, variance, *parameters) + tf.reduce_sum(kernel * terms, axis=1) / math.pi
        )  # (A11)

    rows = rows_of(memory, y.alpha.shape[1], T, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _rule(
    site: Site,
    shift: tf.Tensor,
    spread: tf.Tensor,
    parameters: list[tf.Tensor],
    R: tf.Tensor,
    T: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    # By (A13), or Gauss-Legendre nodes up to the site's `cutoff`; not differentiated. The distance
    # is clipped to where y has mass, as the sum is periodic.
    if site.cutoff is not None:
        nodes, weights = (
            tf.constant(part, shift.dtype) for part in np.polynomial.legendre.leggauss(T)
        )
        half = 0.5 * tf.stop_gradient(site.cutoff(spread, *parameters))[:, None]
        return half * (nodes + 1.0), half * weights, shift
    width = tf.zeros_like(shift) if site.width is None else site.width(*parameters)
    reach = tf.stop_gradient(R * spread + width)
    shift = tf.clip_by_value(shift, -reach, reach)
    step = (2.0 * math.pi / (tf.stop_gradient(tf.abs(shift)) + reach))[:, None]  # (A13)
    return step * tf.range(1, T + 1, dtype=shift.dtype), step, shift
