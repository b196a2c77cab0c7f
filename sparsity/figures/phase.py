"""The limit law of softmax holds only up to γ ≈ ½√(ln n)

Against γ and n: effective tokens n_eff (blue) of rows of n weights exp(s), s ~ N(0, γ²)

Up to half of γ_c = √(2 ln n) all tokens count and n_eff = n·exp(−γ²) (annealed), which is the limit
law S = exp(−γ²/2). Between γ_c/2 and γ_c the few largest weights make up Σa², and n_eff falls like
exp((γ_c − γ)²) to leading order; beyond γ_c a handful of tokens hold all the mass, in rows of any
length (condensed). At real lengths these transitions are wide: the limit law is within 10 % of the
exact S left of the thick line only, from γ = 0.50 √(ln n) in short rows to 0.62 √(ln n) at 10¹²
tokens; γ = 1.40 for n = 1024. Contours: the exact law of rows of finite length.

Alt text: Phase diagram of softmax rows, length from 10 to 10¹² against spread over the root of ln n
from 0 to 2.3. Contours of 3 to 10¹⁰ effective tokens start flat at the left and become steep
towards the right. Grey lines at 0.71 and 1.41 part three tinted regimes: annealed, extremes,
condensed. A thick line from 0.5 at the bottom to 0.62 at the top bounds the region where the limit
law is within ten per cent.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import PchipInterpolator

from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.exact_law.regimes import critical_spread, limit_reach
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import Series

SHORTEST, LONGEST, WIDEST = 10.0, 1e12, 2.3
LEVELS = {  # of n_eff, and the length at which a contour is named
    3: 100, 5: 3e6, 10: 1e8, 30: 1e9, 100: 1e10, 1e3: 1e11,
    1e4: 2e4, 1e6: 2e6, 1e8: 2e8, 1e10: 2e10,
}  # fmt: skip
BOUNDARIES = {"γ_c/2": 0.5, "γ_c": 1.0}
_LENGTHS = np.unique(np.round(np.geomspace(1, LONGEST, 61)))
_GAMMAS = np.concatenate([[1e-3], np.linspace(0.1, 1, 10), np.geomspace(1.1, 12.4, 40)])


def _contours() -> Data:
    """Compute n against γ/√(ln n) at fixed n_eff."""
    # At fixed γ, n_eff rises with n, and at fixed n it falls with γ. So ln n is a function of
    # ln n_eff along each row of the grid, and PCHIP, which keeps what is monotone monotone, gives
    # the n of a level. A last point on the upper edge, by γ, ends a contour where it leaves.
    log = [exact("exp", length=_LENGTHS, gamma=gamma).log_value for gamma in _GAMMAS.tolist()]
    log, log_n = np.array(log), np.log(_LENGTHS)
    found: dict[float, list[tuple[float, float]]] = {level: [] for level in LEVELS}
    for gamma, along in zip(_GAMMAS.tolist(), log, strict=True):
        length = PchipInterpolator(along, log_n)
        for level, points in found.items():
            if np.log(level) < along[-1]:
                at = float(length(np.log(level)))
                points.append((gamma / np.sqrt(at), at))
    last = PchipInterpolator(log[::-1, -1], _GAMMAS[::-1])  # where they leave the diagram
    for level, points in found.items():
        if np.log(level) > log[-1, -1]:
            points.append((float(last(np.log(level))) / np.sqrt(log_n[-1]), log_n[-1]))
    return tuple(
        Series.line(f"n_eff = {level:g}", *zip(*points, strict=True)).named(
            "gamma/sqrt(ln n)", "length", "tokens", kernel="exp", n_eff=level
        )
        for level, points in found.items()
    )


def data(context: Context) -> Data:
    """Compute contours of n_eff, n against γ/√(ln n); then the bounds of the regimes, against n."""
    n = np.round(np.geomspace(SHORTEST, LONGEST, 20))
    bounds = {name: share * critical_spread(n) for name, share in BOUNDARIES.items()}
    bounds["limit within 10 %"] = limit_reach(n)
    lines = (
        Series.line(name, n, np.log(at / np.sqrt(np.log(n)))).named(
            "length", "gamma/sqrt(ln n)", kernel="exp"
        )
        for name, at in bounds.items()
    )
    return (*_contours(), *lines)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw contours over tinted regimes, with the reach of the limit law in front."""
    *contours, half, whole, reach = data
    ax = plotting.axes(canvas, "spread of the scores over √(ln n),  γ/√(ln n)", "row length  n")
    ax.grid(visible=False)
    ax.set(yscale="log", xlim=(0, WIDEST), ylim=(SHORTEST, LONGEST))
    plotting.plain_ticks(ax.xaxis, (0, 0.5, 1, 1.5, 2))
    plotting.plain_ticks(ax.yaxis, (10.0, 1e3, 1e6, 1e9, 1e12))
    edges = (0.0, half.theory[0], whole.theory[0], WIDEST)
    tints = {"annealed": "#e6eff7", "extremes": "#f5f5f6", "condensed": "#fbebe1"}
    place = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": plotting.GREY}
    for left, right, (name, tint) in zip(edges, edges[1:], tints.items(), strict=False):
        ax.axvspan(left, right, color=tint, zorder=0, linewidth=0)
        ax.text((left + right) / 2, 1.02, name, **place)
    for bound, name in ((half, r"½$\gamma_c$"), (whole, r"$\gamma_c$")):
        ax.plot(bound.theory, bound.x, color=plotting.GREY, lw=1)
        ax.text(bound.theory[0], 1.02, name, **place)
    blue, red = plotting.LOOKS[:2]
    for contour in contours:
        level = contour.key["n_eff"]
        ax.plot(contour.x, contour.theory, color=blue.color, lw=1.4)
        x = float(np.interp(np.log(LEVELS[level]), contour.log, contour.x))
        plotting.inline(ax, x, LEVELS[level], plotting.tick_label(level), blue.color, fontsize=9.5)
    ax.plot(reach.theory, reach.x, color=red.color, lw=2.8)
    style = {"rotation": 87.5, "fontsize": 9.5}
    plotting.inline(ax, 0.659, 6e9, "limit 10 % too low", red.color, **style)


FIGURE = Figure.from_docstring(__doc__, "phase", data, draw, size=(7.2, 5.0))
