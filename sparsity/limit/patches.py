"""Moments of many Gaussian scores at once: nodes that serve a whole patch of (β, γ).

The plane of (β, γ) is covered by patches of fixed places. The panels of a patch are cut in the
coordinate of its middle, t = (s − β₀)/γ₀, and are good for the four laws at its corners. They are
then good for every law in it: log of a density is there linear in (ρ², ρ²δ), with ρ = γ₀/γ and
δ = (β − β₀)/γ₀, which lie in the hull of the corners; and the error of one panel over the least
mass of another is the exponential of a largest such function less a smallest one, which is convex.
The kernel is evaluated once at the nodes. A point of the patch is then a sum of masses times the
ratio of two densities.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.axis import NODES, Axis, PanelBounds, Panels
from sparsity.limit.masses import Nodes, weighed
from sparsity.limit.moments import Moments
from sparsity.limit.panels import cut
from sparsity.limit.score_laws import Gaussian, Neighbour

_SIZES = (1.0, 0.25, 0.0625)  # of patches, tried in turn: octaves of γ, and β over γ₀
_CORNERS = tuple(itertools.product((-1, 1), repeat=2))
_PROBES = np.linspace(-50, 50, 201)  # t; mass further out leaves no digits to spare
_APART = -12.0  # log of the least share of the mass that some place must have at all corners
_FAR = 1e6  # β/γ beyond which a patch has too few digits of β
_WORK = 150_000  # as in `panels.cut`
_MOST = 6_000  # nodes of a patch
_RISE = 300.0  # log of a ratio of densities that can bring no lost mass back
_BLOCK = 2**15  # numbers that are worked on together
_GOOD = 1e-12  # error of log m up to which a patch is used
_RUN = 96  # terms that may be added one after another, in whatever order


class Patch(NamedTuple):
    """The nodes of a patch.

    Args:
        frame: the law in its middle.
        origin: a place where its mass is, in the coordinate t of the frame.
        x: nodes t − origin.
        mass: |f|^p times the density of the frame over that at the origin, over e^top,
            [powers, nodes].
        noise: bounds on the errors of the masses.
        top: logs, [powers].
        lost: what the rules may be wrong by, over each moment.
    """

    frame: Gaussian
    origin: float
    x: np.ndarray
    mass: np.ndarray
    noise: np.ndarray
    top: np.ndarray
    lost: np.ndarray

    def log_moments(self, beta: np.ndarray, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log m_p and bounds on its error, [powers, points]."""
        rho = self.frame.gamma / gamma
        sharp, out = rho * rho, self.origin - (beta - self.frame.beta) / self.frame.gamma
        # −ρ²(t − δ)²/2 + (t² − origin²)/2 as a polynomial of x
        flat, slope, bend = -sharp * out**2 / 2, self.origin - sharp * out, (1 - sharp) / 2
        step = min(max(_BLOCK // len(self.x), 1), len(beta))
        runs = np.stack([self.mass, self.noise]).reshape(2, len(self.top), 1, -1, _RUN)
        sums, work = np.empty((2, len(self.top), len(beta))), np.empty((step, len(self.x)))
        for start in range(0, len(beta), step):
            part = slice(start, start + step)
            ratio = work[: len(slope[part])]
            np.multiply(self.x, bend[part, None], out=ratio)
            ratio += slope[part, None]
            ratio *= self.x
            np.exp(ratio, out=ratio)
            sums[..., part] = np.vecdot(ratio.reshape(len(ratio), -1, _RUN), runs).sum(axis=-1)
        mass, noise = sums
        value = np.log(mass) + self.top[:, None] + flat + np.log(rho) + self.frame.log_norm
        wrong = -np.log1p(-np.minimum(noise / mass + self.lost[:, None], 1.0))
        size = np.abs(value) + np.abs(self.top[:, None]) - 4 * flat
        return value, wrong + EPS * (_RUN / 2 + 24 + size)


class _CappedMoments(Moments):
    """Moments of no more panels than a patch may have: what is beyond that is not cut further."""

    def keep(self, known: PanelBounds) -> None:
        """Keep the panels, as long as there are not too many."""
        super().keep(known)
        if sum(panels.a.size for panels in self.kept) * NODES.size > _MOST:
            raise TooFine("weight", self.axis.f.kernel.weight, "needs too many panels for a patch")


def _corners_share_mass(axis: Axis, goal: Moments) -> bool:
    """Whether the corners have mass in common, for all one can see at some places."""
    centre = np.full(len(_PROBES), int(np.flatnonzero(axis.t == 0)[0]))
    f = axis.at(centre, _PROBES).log
    g = goal.p * np.where(np.isnan(f), -np.inf, f)
    g = g + np.array([law.log_density(_PROBES) for law in goal.laws])
    top = g.max(axis=1, keepdims=True)
    share = (g - top).reshape(-1, len(_CORNERS), len(_PROBES)).min(axis=1)
    inside = g[:, 1:-1].max(axis=1) == top[:, 0]
    return bool(inside.all() and (share.max(axis=1) > _APART).all())


def _lost(goal: Moments) -> tuple[np.ndarray, int]:
    """The most that all errors together are of each moment in the patch; a panel with mass."""
    sure = np.concatenate(goal.sure, axis=1)
    share = (sure - goal.least[:, None]).reshape(-1, len(_CORNERS), sure.shape[1]).min(axis=1)
    best = share.argmax(axis=1)  # each moment is at least its mass on that panel
    least = sure[np.arange(len(sure)), np.repeat(best, len(_CORNERS))]
    lost = np.concatenate(goal.lost, axis=1) - least[:, None]
    worst = lost.reshape(len(best), len(_CORNERS), -1).max(axis=1)
    return np.exp(np.logaddexp.reduce(worst, axis=1)), int(best[0])


def _rounding(nodes: Nodes, x: np.ndarray, origin: float, size: float) -> np.ndarray:
    """Relative error of e^(log density) at nodes, wherever in the patch the law is."""
    steep = 2**size * abs(origin)
    inexact = EPS * np.abs(nodes.anchor - origin) * (1 + steep + np.abs(x))
    polynomial = EPS * (8 + 4 * x * x + 4 * (1 + steep) * np.abs(x))
    return polynomial + inexact + 2 * (1 + np.abs(nodes.t)) * nodes.shift


def _max_log_ratio(x: np.ndarray, origin: float, law: Neighbour) -> float:
    """Log of the largest ratio of a law's density to that of the frame, over that at the origin."""
    sharp = law.rho**2
    slope = origin - sharp * (origin - law.delta)
    return float((x * (slope + x * (1 - sharp) / 2)).max())


def _filled(x: np.ndarray) -> np.ndarray:
    """The last axis, filled with zeros to whole runs."""
    missing = -x.shape[-1] % _RUN
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])


def _build_patch(
    kernel: Kernel, powers: tuple[float, ...], frame: Gaussian, size: float
) -> Patch | None:
    """The patch around a law; None where its corners have no mass in common or too few digits.

    Raises:
        TooFine: it needs too many panels.
    """
    reach = 2.0 ** (size / 2) * (1 + 1e-9)
    corners = [
        Neighbour(
            frame, frame.beta + b * frame.gamma * size / 2 * (1 + 1e-9), frame.gamma * reach**c
        )
        for b, c in _CORNERS
    ]
    axis = Axis(definition(kernel), frame)
    goal = _CappedMoments(axis, np.repeat(powers, len(corners)).tolist(), corners * len(powers))
    if not _corners_share_mass(axis, goal):
        return None
    cut(axis, goal, _WORK)
    lost, best = _lost(goal)
    panels = Panels.joined(goal.kept)
    nodes = goal.nodes(panels)
    # At an anchor places keep their digits.
    anchor, middle = float(nodes.anchor[best, 0]), float(nodes.t[best].mean())
    origin = anchor if abs(middle - anchor) < 1 else middle
    x = nodes.anchor - origin + nodes.offset
    if max(_max_log_ratio(x, origin, corner) for corner in corners) > _RISE:
        return None
    own = _rounding(nodes, x, origin, size)
    p = np.array(powers)[:, None, None]
    top, mass, noise = weighed(nodes, p, -x * (origin + x / 2), own)
    if not np.all(np.isfinite(top)):
        return None
    mass, noise = (_filled(y.reshape(len(powers), -1)) for y in (mass, noise))
    return Patch(frame, origin, _filled(x.ravel()), mass, noise, top, lost)


@functools.lru_cache(maxsize=256)
@np.errstate(all="ignore")
def patch(
    kernel: Kernel, powers: tuple[float, ...], size: float, row: float, column: float
) -> Patch | None:
    """The patch around γ₀ = 2^(size·row), β₀ = size·column·γ₀; None where nodes do not serve it.

    Args:
        kernel: a kernel of Law.SCORE.
        powers: p > 0.
        size: of the patch, in octaves of γ, and in β over γ₀.
        row: its number along log γ.
        column: and along β.
    """
    spread = float(np.exp2(size * row))
    if not (0 < spread < np.inf and np.isfinite(column * spread)):
        return None
    try:
        return _build_patch(kernel, powers, Gaussian(size * column * spread, spread), size)
    except InputError:  # at some point of it; each point speaks for itself
        return None


@np.errstate(all="ignore")
def log_moments(
    kernel: Kernel, powers: tuple[float, ...], beta: np.ndarray, gamma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log E|f(β + γε)|^p, ε ~ N(0, 1), and bounds on its error; ∞ where no patch serves.

    What is found for a point does not depend on the other points.

    Args:
        kernel: a kernel of Law.SCORE.
        powers: p > 0.
        beta: biases, [points].
        gamma: spreads > 0, [points].

    Returns:
        Two arrays, [powers, points].
    """
    value = np.zeros((len(powers), len(beta)))
    error = np.full(value.shape, np.inf)
    for size in _SIZES:
        todo = np.flatnonzero(np.isinf(error[0]) & (np.abs(beta) < _FAR * gamma))
        if not todo.size:
            break
        rows = np.rint(np.log2(gamma[todo]) / size)
        columns = np.rint(beta[todo] / (size * np.exp2(size * rows)))
        places, which = np.unique(rows + 1j * columns, return_inverse=True)
        for number, place in enumerate(places.tolist()):
            found = patch(kernel, powers, size, place.real, place.imag)
            if found is None:
                continue
            here = todo[which == number]
            log, bound = found.log_moments(beta[here], gamma[here])
            good = (bound <= _GOOD).all(axis=0)
            value[:, here[good]], error[:, here[good]] = log[:, good], bound[:, good]
    return value, error
