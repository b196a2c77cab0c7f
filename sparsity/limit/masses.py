"""Nodes of a rule on panels, and the masses of |f|^p that they carry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsity.kernels.numeric.definition import At


class Nodes(NamedTuple):
    """Nodes of the rule on panels, at places anchor + offset, [panels, nodes].

    Args:
        anchor: places of the anchors, [panels, 1].
        offset: from there.
        weight: of the rule.
        found: |f| there.
        shift: errors of the anchors, [panels, 1].
    """

    anchor: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    found: At
    shift: np.ndarray

    @property
    def t(self) -> np.ndarray:
        """The places."""
        return self.anchor + self.offset


def weighed(
    nodes: Nodes, p: np.ndarray, density: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses |f|^p·e^density·weight of nodes.

    Args:
        nodes: the nodes.
        p: powers, [powers, 1, 1].
        density: log of the density at the nodes.
        own: relative error of e^density·weight.

    Returns:
        A scale top, [powers]; the masses and bounds on their errors over e^top, [powers, …].
    """
    found = nodes.found
    with np.errstate(invalid="ignore"):
        top = (p * found.log + density).max(axis=(1, 2))
        base = density - np.where(np.isfinite(top), top, 0.0)[:, None, None]
        mass = nodes.weight * np.exp(p * found.log + base)
        wrong = np.expm1(np.minimum(p * found.error, 700.0)) + own
        most = nodes.weight * np.exp(np.minimum(p * found.most + base, 700.0))
        noise = np.where(found.error > 0.5, most + mass, mass * wrong)
    return top, mass, np.where(np.isnan(noise), np.inf, noise)
