"""Eight of n tokens: softmax needs γ ≈ ½ ln n to about n = 10⁴

Against n: what each kernel needs for n_eff = 8 effective tokens in a row of n

Softmax needs a spread γ of its scores that grows almost like ln n at real lengths: γ/ln n is
between 0.50 and 0.53 to n = 10⁴, then falls, to 0.39 at 10⁹. In very long rows √(ln n) is enough,
so a constant γ/ln n then focuses more and more. Squared ReLU needs a bias that falls like
−√(2 ln n) spreads; decay the same λ = 7/9 at every length. Nonnegative linear attention needs noise
that grows like √n, even with a one-hot query (limit of long rows). Signed linear attention cannot:
whatever its bias and spread it attends to 2n/π tokens or more (grey: out of reach). All but the
nonnegative: inverse of the exact law of rows of finite length.

Alt text: Six small line charts against row length from 64 to a billion tokens. Softmax: the spread
rises from 2.1 to 8.1, below half of ln n at the end. Its ratio to ln n stays near 0.5 and falls to
0.39. Squared ReLU: minus bias over spread rises from 0.4 to 5.4. Decay is flat at 0.78. Nonnegative
linear: noise over signal rises like the root of n, to ten thousand. Signed linear: the least number
of tokens rises with n, far above the eight that are wanted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sparsity import plotting
from sparsity.design_search import design
from sparsity.exact_law.exact import exact
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import Series

TOKENS = 8.0
LENGTHS = np.unique(np.round(np.geomspace(64, 1e9, 19)))


def _required(kernel: str, label: str, sign: float = 1.0) -> Series:
    n = [int(length) for length in LENGTHS]
    rows = design(kernel, length=n[0], n_eff=TOKENS, lengths=n).requirements
    # A length at which no value gives the focus is a gap of the line.
    values = [math.nan if row.value is None else sign * row.value for row in rows]
    return Series.line(label, LENGTHS, np.log(values), kernel=kernel, n_eff=TOKENS)


def data(context: Context) -> Data:
    """Compute the required parameter against n; of signed linear attention its floor of n_eff."""
    # Signed linear attention has no solution; in its place stands the least n_eff in reach. One
    # nonnegative feature has S² = 1/(1 + r²), r = σ̃/μ̃: n·S² = TOKENS at r = √(n/TOKENS − 1).
    spread, ends = _required("exp", "γ"), LENGTHS[[0, -1]]
    floors = exact("identity", length=LENGTHS, beta=0.0, gamma=1.0).value
    scale = Series.line("γ/ln n", LENGTHS, spread.log - np.log(np.log(LENGTHS)))
    noise = Series.line("σ̃/μ̃", LENGTHS, 0.5 * np.log(LENGTHS / TOKENS - 1))
    floor = Series.line("floor of n_eff", LENGTHS, np.log(floors))
    level = Series.line("wanted n_eff", ends, np.full(2, np.log(TOKENS)))
    root = Series.line("½ ln n", ends, np.log(np.log(ends) / 2))
    return (
        spread.named("length", "gamma"),
        scale.named("length", "gamma/ln(n)", kernel="exp", n_eff=TOKENS),
        _required("relu2", "−β/γ", -1.0).named("length", "-beta/gamma"),
        _required("decayed", "λ").named("length", "decay"),
        noise.named("length", "ratio", kernel="nonnegative", n_eff=TOKENS),
        floor.named("length", "n_eff", "tokens", kernel="identity"),
        root.named("length", "ln(n)/2"),
        level.named("length", "n_eff", "tokens"),
    )


class _Panel(NamedTuple):
    """One kernel: its name, what is solved for and where that is written, and the axis."""

    title: str
    parameter: str
    at: tuple[float, float]
    scale: str
    ticks: tuple[float, ...]


_PANELS = (
    _Panel("Softmax", "spread  γ", (0.05, 0.9), "linear", (0, 3, 6, 9)),
    _Panel("Softmax", "γ/ln n", (0.05, 0.12), "linear", (0, 0.2, 0.4, 0.6)),
    _Panel("Squared ReLU", "bias  −β/γ", (0.05, 0.9), "linear", (0, 2, 4, 6)),
    _Panel("Decay", "decay  λ", (0.05, 0.12), "linear", (0, 0.5, 1)),
    _Panel("Nonnegative linear", "noise  σ̃/μ̃", (0.05, 0.9), "log", (1, 10, 100, 1e3, 1e4)),
    _Panel("Signed linear: never", "least n_eff", (0.05, 0.9), "log", (1, 1e3, 1e6, 1e9)),
)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw six panels over the same lengths."""
    for i, panel in enumerate(_PANELS):
        box = (0.07 + 0.327 * (i % 3), 0.545 - 0.44 * (i // 3), 0.255, 0.27)
        ax, look = plotting.panel(canvas, box), plotting.LOOKS[i]
        low, high = panel.ticks[0], panel.ticks[-1] * (1.5 if panel.scale == "log" else 1)
        ax.set(xscale="log", yscale=panel.scale, xlim=(64, 1e9), ylim=(low, high))
        ax.set_xlabel("row length  n")
        plotting.length_ticks(ax.xaxis, 64, 1e9, most=4)
        plotting.plain_ticks(ax.yaxis, panel.ticks)
        ax.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", color=look.color)
        ax.plot(data[i].x, data[i].theory, color=look.color, clip_on=False)
        place = {"transform": ax.transAxes, "ha": "left", "fontsize": 10}
        plotting.inline(ax, *panel.at, panel.parameter, plotting.INK, **place)
    first, *_, last = canvas.axes
    grey = {"color": plotting.GREY, "lw": 1}
    *_, half, wanted = data
    first.plot(half.x, half.theory, ls=plotting.DASHED, **grey)
    plotting.inline(first, 4e6, 8.55, "½ ln n", plotting.GREY, fontsize=9.5, ha="right")
    last.fill_between(data[5].x, 1, data[5].theory, color=plotting.SHADE, zorder=0)
    last.plot(wanted.x, wanted.theory, **grey)
    plotting.inline(last, 7e8, 60, "wanted: 8", plotting.GREY, fontsize=9.5, ha="right")


FIGURE = Figure.from_docstring("design", data, draw, __doc__, size=(7.2, 5.6))
