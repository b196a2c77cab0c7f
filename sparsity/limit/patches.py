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
from sparsity.limit.densities import Gaussian, Neighbour
from sparsity.limit.moments import Moments, Nodes
from sparsity.limit.panels import NODES, Axis, PanelBounds, Panels, cut

# Of patches, tried in turn: octaves of γ, and β over γ₀. A wide patch serves more points, but its
# panels have to be good at corners that are farther apart: where they would be too many, or the
# corners share no mass, a narrower one is tried, and then the points are integrated one by one.
_PATCH_SIZES = (1.0, 0.25, 0.0625)
_CORNERS = tuple(itertools.product((-1, 1), repeat=2))
_A_LITTLE_MORE = 1 + 1e-9  # corners lie a little outside, so that points on an edge are within
_PROBES = np.linspace(-50, 50, 201)  # t; mass further out leaves no digits to spare
# Of the peak mass, that some place must have at all corners. The bound divides errors by the mass
# on one panel that all corners share: by a share of e^−12 = 6e−6, 1e−17 becomes 2e−12.
_LEAST_LOG_SHARE = -12.0
# β/γ beyond which a patch has too few digits of β: δ = (β − β₀)/γ₀ is then off by EPS·10⁶ = 2e−10.
_MAX_BETA_OVER_GAMMA = 1e6
_MAX_WORK = 150_000  # of a patch, as in `panels.cut`: a few points by themselves cost as much
_MAX_NODES = 6_000  # of a patch: 256 patches are kept, of 5 numbers a node
# Log of a ratio of densities that can bring no lost mass back: masses below e^−700 have underflowed
# to 0, and would be e^−400 at most.
MAX_LOG_RATIO = 300.0
_CACHED_NUMBERS = 2**15  # numbers that are worked on together: they stay in a processor's cache
# Error of log m up to which a patch is used; else the point is integrated by itself.
_MAX_ERROR = 1e-12
# Terms that may be added one after another, in whatever order: their rounding is within 96/2 units
# of EPS. It is four panels of 24 nodes, so that few runs are padded; shorter ones cost time.
_RUN_LENGTH = 96


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
        """Return log m_p and bounds on its error, [powers, points].

        The log ratio of the densities, −ρ²(t − δ)²/2 + (t² − origin²)/2, is a polynomial of x. A
        sum over nodes goes in runs of `_RUN_LENGTH`, so that its rounding is bounded whatever the
        order in which a processor adds. All terms are positive: nothing cancels, and the relative
        error of a sum is at most the largest of its terms, which the noise sums hold, plus that of
        adding up.

        The loop goes over as many points as fit a cache with all nodes; exp of (points × nodes) is
        most of the work, and is done in place.
        """
        rho = self.frame.gamma / gamma
        sharp, out = rho * rho, self.origin - (beta - self.frame.beta) / self.frame.gamma
        flat, slope, bend = -sharp * out**2 / 2, self.origin - sharp * out, (1 - sharp) / 2
        step = min(max(_CACHED_NUMBERS // len(self.x), 1), len(beta))
        runs = np.stack([self.mass, self.noise]).reshape(2, len(self.top), 1, -1, _RUN_LENGTH)
        sums, work = np.empty((2, len(self.top), len(beta))), np.empty((step, len(self.x)))
        for start in range(0, len(beta), step):
            part = slice(start, start + step)
            ratio = work[: len(slope[part])]
            np.multiply(self.x, bend[part, None], out=ratio)
            ratio += slope[part, None]
            ratio *= self.x
            np.exp(ratio, out=ratio)
            sums[..., part] = np.vecdot(ratio.reshape(len(ratio), -1, _RUN_LENGTH), runs).sum(
                axis=-1
            )
        mass, noise = sums
        value = np.log(mass) + self.top[:, None] + flat + np.log(rho) + self.frame.log_norm
        wrong = -np.log1p(-np.minimum(noise / mass + self.lost[:, None], 1.0))
        size = np.abs(value) + np.abs(self.top[:, None]) - 4 * flat
        return value, wrong + EPS * (_RUN_LENGTH / 2 + 24 + size)


class _CappedMoments(Moments):
    """Moments that refuse more nodes than a patch may have."""

    def collect(self, known: PanelBounds) -> None:
        super().collect(known)
        if sum(panels.a.size for panels in self.kept) * NODES.size > _MAX_NODES:
            raise TooFine("weight", self.axis.f.kernel.weight, "needs too many panels for a patch")


def _corners_share_mass(axis: Axis, goal: Moments) -> bool:
    """Say whether the corners have mass in common, for all one can see at some places.

    Where they have not, panels good for all of them would be wasted on each, and errors over the
    mass that they share would be bounds of no use. A wrong yes costs time, a wrong no another patch
    or an integral of its own: neither costs a digit, which is why looking at some places will do.
    """
    centre = np.full(len(_PROBES), int(np.flatnonzero(axis.t == 0)[0]))
    f = axis.values_at(centre, _PROBES).log
    g = goal.p * np.where(np.isnan(f), -np.inf, f)
    g = g + np.array([law.log_density(_PROBES) for law in goal.laws])
    top = g.max(axis=1, keepdims=True)
    share = (g - top).reshape(-1, len(_CORNERS), len(_PROBES)).min(axis=1)
    inside = g[:, 1:-1].max(axis=1) == top[:, 0]
    return bool(inside.all() and (share.max(axis=1) > _LEAST_LOG_SHARE).all())


def _relative_error(goal: Moments) -> tuple[np.ndarray, int]:
    """Bound all errors of the rules over each moment, wherever in the patch the law is.

    Of all panels that one is taken whose share of the mass is largest at the corner where it has
    least: the moment is at least the mass L on it. Each error E over L is a ratio of one largest to
    one smallest density, the exponential of a convex function of (ρ², ρ²δ), so it is largest at a
    corner; the sum of those maxima bounds the sum at every point between.

    Returns:
        The bounds, [powers], and the number of that panel of the first moment.
    """
    sure = np.concatenate(goal.sure, axis=1)  # log of the least masses, [powers · corners, panels]
    share = (sure - goal.least[:, None]).reshape(-1, len(_CORNERS), sure.shape[1]).min(axis=1)
    best = share.argmax(axis=1)
    least = sure[np.arange(len(sure)), np.repeat(best, len(_CORNERS))]
    errors = np.concatenate(goal.lost, axis=1) - least[:, None]
    worst = errors.reshape(len(best), len(_CORNERS), -1).max(axis=1)
    return np.exp(np.logaddexp.reduce(worst, axis=1)), int(best[0])


def _rounding_of_density(nodes: Nodes, x: np.ndarray, origin: float, size: float) -> np.ndarray:
    """Bound the relative error of e^(log density) at nodes, wherever in the patch the law is.

    ρ² is at most 2^size, so the log density −ρ²(t − δ)²/2 has a slope of about (1 + steep + |x|) in
    t. Three things are rounded: x itself, where the anchor is not the origin; the terms of the
    polynomial of x; and the anchor, as the place of a root. The difference anchor − origin is
    rounded by half of EPS: the other half covers the factor ρ² ≤ 2 of |x|.
    """
    steep = 2**size * abs(origin)
    offset = EPS * np.abs(nodes.anchor - origin) * (1 + steep + np.abs(x))
    polynomial = EPS * (8 + 4 * x * x + 4 * (1 + steep) * np.abs(x))
    return polynomial + offset + 2 * (1 + np.abs(nodes.t)) * nodes.shift


def _max_log_ratio(x: np.ndarray, origin: float, law: Neighbour) -> float:
    """Return log of the largest ratio of a law's density to the frame's, over that at origin."""
    sharp = law.rho**2
    slope = origin - sharp * (origin - law.delta)
    return float((x * (slope + x * (1 - sharp) / 2)).max())


def _build_patch(
    kernel: Kernel, powers: tuple[float, ...], frame: Gaussian, size: float
) -> Patch | None:
    """Return the patch around a law; None where its corners share no mass or have too few digits.

    Raises:
        TooFine: it needs too many panels.
    """
    wide, reach = size / 2 * _A_LITTLE_MORE, 2.0 ** (size / 2) * _A_LITTLE_MORE
    corners = [
        Neighbour(frame, frame.beta + b * frame.gamma * wide, frame.gamma * reach**c)
        for b, c in _CORNERS
    ]
    axis = Axis(definition(kernel), frame)
    goal = _CappedMoments(axis, np.repeat(powers, len(corners)).tolist(), corners * len(powers))
    if not _corners_share_mass(axis, goal):
        return None
    cut(axis, goal, _MAX_WORK)
    if not any(sure.size for sure in goal.sure):  # no panel has any for certain
        return None
    lost, best = _relative_error(goal)
    nodes = goal.nodes(Panels.joined(goal.kept))
    # At an anchor places keep their digits.
    anchor, middle = float(nodes.anchor[best, 0]), float(nodes.t[best].mean())
    origin = anchor if abs(middle - anchor) < 1 else middle
    x = nodes.anchor - origin + nodes.offset
    if max(_max_log_ratio(x, origin, corner) for corner in corners) > MAX_LOG_RATIO:
        return None
    rounding = _rounding_of_density(nodes, x, origin, size)
    p = np.array(powers)[:, None, None]
    top, mass, noise = nodes.masses(p, -x * (origin + x / 2), rounding)
    if not np.all(np.isfinite(top)):
        return None
    missing = -x.size % _RUN_LENGTH  # nodes without mass that fill the last run
    mass, noise = (
        np.pad(y.reshape(len(powers), -1), [(0, 0), (0, missing)]) for y in (mass, noise)
    )
    return Patch(frame, origin, np.pad(x.ravel(), (0, missing)), mass, noise, top, lost)


@functools.lru_cache(maxsize=256)
@np.errstate(all="ignore")
def patch(
    kernel: Kernel, powers: tuple[float, ...], size: float, row: float, column: float
) -> Patch | None:
    """Return the patch around γ₀ = 2^(size·row), β₀ = size·column·γ₀; None where it serves no law.

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
    """Return log E|f(β + γε)|^p, ε ~ N(0, 1), and bounds on its error; ∞ where no patch serves.

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
    for size in _PATCH_SIZES:
        todo = np.flatnonzero(np.isinf(error[0]) & (np.abs(beta) < _MAX_BETA_OVER_GAMMA * gamma))
        if not todo.size:
            break
        rows = np.rint(np.log2(gamma[todo]) / size)
        columns = np.rint(beta[todo] / (size * np.exp2(size * rows)))
        # Two whole numbers as one complex number: np.unique sorts those in one pass.
        places, which = np.unique(rows + 1j * columns, return_inverse=True)
        for number, place in enumerate(places.tolist()):
            a_patch = patch(kernel, powers, size, place.real, place.imag)
            if a_patch is None:
                continue
            here = todo[which == number]
            log, bound = a_patch.log_moments(beta[here], gamma[here])
            good = (bound <= _MAX_ERROR).all(axis=0)
            value[:, here[good]], error[:, here[good]] = log[:, good], bound[:, good]
    return value, error
