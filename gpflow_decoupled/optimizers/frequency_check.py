"""A check at the end of a run of an affine-independent model: whether its frequencies or grid
points are enough.
"""

from __future__ import annotations

__all__ = ["frequency_warning"]

import numpy as np

from ..expectations.site_integrals import Integration, SiteGroup, integrate, route_of
from ..models import AffineIndependentGP

_DOUBLINGS = 3
"""How often the number is doubled to find the one that the warning may advise"""


def frequency_warning(
    model: AffineIndependentGP, elbo: float, rows: int, allowed: float
) -> str | None:
    """What to say where twice the frequencies and grid points change the bound; None where they do
    not.

    :param model: whose q is integrated, as it is.
    :param elbo: the bound that a run reports, in nats.
    :param rows: at most about so many observations are integrated, evenly spaced, and their error
        is scaled to all.
    :param allowed: the change in nats that is not worth a warning.
    """
    how, (group, *_) = model.integration, model.site_groups()
    stride = -(-int(group.features.shape[0]) // rows)
    some = _every(group, stride)
    values = _values(model, some, how)
    if not np.all(np.isfinite(values)):
        return None
    # twice the number until nothing changes; the first change is the error, up to that of twice the
    # number
    gap, finer, last = 0.0, how, values
    for count in range(_DOUBLINGS):
        finer = finer.doubled()
        now = _values(model, some, finer)
        change = float(np.sum(last - now, dtype=float)) * len(group.offset) / len(values)
        gap, last = gap + change, now
        if abs(change) <= (allowed if count == 0 else 0.1 * allowed):
            break
    if not abs(gap) > allowed:
        return None
    name = (
        "frequencies"
        if route_of(model.basis.base, group.site, how.route) == "frequency_sum"
        else "points"
    )
    return (
        f"The bound of {elbo:.6g} nats is not accurate: with the same q(f) it is {elbo - gap:.6g}"
        f" nats with {getattr(finer, name)} {name} in the place of {getattr(how, name)}, by up to"
        f" {np.max(np.abs(values - last)):.2g} nats per observation. Build the model with"
        f" {name}={getattr(finer, name)} and train again."
    )


def _every(group: SiteGroup, stride: int) -> SiteGroup:
    """Every so many of the sites of a group, evenly spaced."""
    rows = slice(None, None, stride)
    return SiteGroup(
        group.site._replace(parameters=tuple(part[rows] for part in group.site.parameters)),
        group.features[rows],
        group.offset[rows],
        None if group.noise is None else group.noise[rows],
    )


def _values(model: AffineIndependentGP, group: SiteGroup, how: Integration) -> np.ndarray:
    """The expected log densities [n] of some sites in nats."""
    return integrate(model.basis.base, model.basis.projections(group), group.site, how).numpy()
