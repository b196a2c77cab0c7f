"""The score axis and panels of it: what is known of a kernel at points, segments and boxes."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from sparsity.kernels.numeric.boxes import ComplexBox
from sparsity.kernels.numeric.definition import At, Definition
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.kernels.numeric.segments import Interval
from sparsity.limit.score_laws import ScoreLaw

# The 24-point Gauss–Legendre rule on [−1, 1]; NumPy's weights are off by 1e−13.
_X = [0.06405689286260562608504308262, 0.1911188674736163091586398207571]
_X += [0.3150426796961633743867932913198, 0.4337935076260451384870842319133]
_X += [0.5454214713888395356583756172184, 0.6480936519369755692524957869107]
_X += [0.7401241915785543642438281030999, 0.8200019859739029219539498726697]
_X += [0.8864155270044010342131543419822, 0.9382745520027327585236490017087]
_X += [0.9747285559713094981983919930082, 0.9951872199970213601799974097007]
_W = [0.1279381953467521569740561652247, 0.1258374563468282961213753825112]
_W += [0.1216704729278033912044631534763, 0.1155056680537256013533444839068]
_W += [0.1074442701159656347825773424466, 0.09761865210411388826988066446425]
_W += [0.08619016153195327591718520298374, 0.07334648141108030573403361525312]
_W += [0.05929858491543678074636775850011, 0.0442774388174198061686027482113]
_W += [0.02853138862893366318130781595188, 0.01234122979998719954680566707004]
NODES = np.array([-x for x in _X[::-1]] + _X)
WEIGHTS = np.array(_W[::-1] + _W)
_COUNT = len(NODES)
RHO = 2.25  # of the ellipse around a panel; its half axes are WIDE and HIGH
WIDE, HIGH = (RHO + 1 / RHO) / 2, (RHO - 1 / RHO) / 2
# |∫ − Gauss rule| ≤ 64/15 · sup|f| · ρ^(−2N)/(1 − ρ^(−2)) on [−1, 1] (Trefethen, ATAP, Thm 19.3)
LOG_RULE = float(np.log(64 / 15) - 2 * _COUNT * np.log(RHO) - np.log1p(-(RHO**-2)))
_POINT, _CALL = 0.05, 40  # segments that a point costs, and any evaluation at all
_DOUBTFUL = 1e-9  # error of log|f| above which it is evaluated slowly


class Panels(NamedTuple):
    """Panels [anchor + low, anchor + high] of the coordinate t.

    Args:
        a: numbers of the anchors.
        low: left ends, from the anchor.
        high: right ends, from the anchor.
    """

    a: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __getitem__(self, which: Any) -> Panels:  # type: ignore[override]
        return Panels(*(x[which] for x in tuple(self)))

    def sorted(self, t: np.ndarray) -> Panels:
        """In ascending order, given the places of the anchors."""
        return self[np.argsort(t[self.a] + self.low, kind="stable")]

    @staticmethod
    def joined(parts: list[Panels]) -> Panels:
        return Panels(*(np.concatenate(column) for column in zip(*map(tuple, parts), strict=True)))


class PanelBounds(NamedTuple):
    """What is known of |f|, or of what is left of it without its tilt, on panels.

    Args:
        panels: the panels.
        t: middles of the panels.
        half: half widths.
        f: least and largest log|f| on the segments.
        around: least and largest log|f| on the boxes, largest |arg f|; NaN: not analytic.
    """

    panels: Panels
    t: np.ndarray
    half: np.ndarray
    f: tuple[np.ndarray, ...]
    around: tuple[np.ndarray, ...] = ()

    def __getitem__(self, which: Any) -> PanelBounds:  # type: ignore[override]
        f, around = (tuple(y[which] for y in x) for x in (self.f, self.around))
        return PanelBounds(self.panels[which], self.t[which], self.half[which], f, around)


class Axis:
    """A law's coordinate, anchored where a linear part of the kernel vanishes and at its centre.

    Args:
        f: the definition of a kernel.
        law: the law of the score.
    """

    def __init__(self, f: Definition, law: ScoreLaw) -> None:
        self.f, self.law, self.work = f, law, 0.0
        first, last = law.steps[0], law.steps[-1]
        at = {law.where(root): root for root in f.roots}
        at = {t: root for t, root in at.items() if first <= t <= last and t != 0} | {0.0: law.beta}
        self.t, self.s = np.array(sorted(at.items()), dtype=np.float64).T
        self.shift = np.array([law.shift(*pair) for pair in zip(self.t, self.s, strict=True)])

    def start(self) -> Panels:
        """Panels over the whole line; each anchor serves the part that is nearest to it."""
        half = np.array([self.law.gap(*pair) for pair in itertools.pairwise(self.s)]) / 2
        lows = np.concatenate([self.law.steps[:1] - self.t[:1], -half])
        highs = np.concatenate([half, self.law.steps[-1:] - self.t[-1:]])
        parts = []
        for a, (t, low, high) in enumerate(zip(self.t, lows, highs, strict=True)):
            x = np.concatenate([self.law.steps - t, [low, 0.0, high]])
            x = np.unique(x[(x >= low) & (x <= high)])
            parts.append(Panels(np.full(len(x) - 1, a), x[:-1], x[1:]))
        return Panels.joined(parts)

    def at(self, a: np.ndarray, x: np.ndarray) -> At:
        """|f| at points, from `Definition.at`."""
        self.work += (_POINT * np.size(x) + _CALL) * self.f.size
        return self.f.at(self.s[a], self.law.offset(Approx(x), self.t[a]))

    def refined(self, a: np.ndarray, x: np.ndarray, found: At, worth: np.ndarray) -> At:
        """What was found at points, in high precision where float64 left doubts.

        Args:
            a: numbers of the anchors.
            x: offsets of t.
            found: |f| there, from `at`.
            worth: which points are worth it.
        """
        size = 1 + np.abs(np.where(np.isfinite(found.log), found.log, 0.0))
        index = np.nonzero((found.error > _DOUBTFUL * size) & worth)
        if not len(index[0]):
            return found
        t = self.t[a[index]]
        offset = [self.law.slow_offset(*pair) for pair in zip(x[index], t, strict=True)]
        slow = self.f.slowly(self.s[a[index]], offset)
        good = ~np.isnan(slow)
        index, slow = tuple(i[good] for i in index), slow[good]
        log, error, most = found.log.copy(), found.error.copy(), found.most.copy()
        log[index], error[index], most[index] = slow, 2 * EPS * (1 + np.abs(slow)), slow
        return At(log, error, most, found.side)

    def on(self, p: Panels, tilted: bool) -> tuple[PanelBounds, list[Any]]:
        """What is known on the segments, and the branches there."""
        self.work += (len(p.a) + _CALL) * self.f.size
        x = self.law.offset(Interval.between(p.low, p.high), self.t[p.a])
        low, high, taken = self.f.on(self.s[p.a], x, tilted)
        middle = self.t[p.a] + (p.low + p.high) / 2
        return PanelBounds(p, middle, (p.high - p.low) / 2, (low, high)), taken

    def around(self, known: PanelBounds, taken: list[Any], tilted: bool) -> PanelBounds:
        """And what is known on the boxes around them."""
        self.work += (len(known.half) + _CALL) * self.f.size
        p, half = known.panels, known.half
        centre = (p.low + p.high) / 2
        wide, high = WIDE * half * (1 + 8 * EPS), HIGH * half * (1 + 8 * EPS)
        box = self.law.offset(ComplexBox(centre - wide, centre + wide, -high, high), self.t[p.a])
        return known._replace(around=self.f.around(self.s[p.a], box, taken, tilted))
