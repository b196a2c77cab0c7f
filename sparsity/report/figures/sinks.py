"""What a sink's logit has to be: to hold its mass in longer rows, and to delay mixing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparsity import plotting
from sparsity.attention.stacks.collapse import neighbours
from sparsity.attention.stacks.mixing import LayerSink, Stack, sampled
from sparsity.attention.stacks.mixing_law import average, distances
from sparsity.design_search.search import sink_logit
from sparsity.limit.long_rows import log_total
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.row import Row
from sparsity.series import Point, Series

MASS = 0.5
SINK_GAMMAS = (1.0, 2.0, 3.0, 4.0)
SINK_LENGTHS = np.unique(np.round(np.geomspace(10, 1e9, 25))).astype(int)


def compute_sinks(context: Context) -> Data:
    """Compute for every γ the logit for half of the mass; then ln n + γ²/2 for each."""
    # Annealed: with Σ exp(s) at its mean n·exp(γ²/2), half of the mass is at exp(b) equal to it.
    ends, exact, annealed = SINK_LENGTHS[[0, -1]], [], []
    for g in SINK_GAMMAS:
        row = Row("exp", gamma=g)
        logit = np.log(sink_logit(MASS, row, length=SINK_LENGTHS))
        exact.append(Series.line(f"γ = {g:g}", SINK_LENGTHS, logit))
        logit = np.log([log_total(row, n) for n in ends.tolist()])
        annealed.append(Series.line(f"ln n + γ²/2, γ = {g:g}", ends, logit))
    return tuple(
        line.named("length", "logit", kernel="exp", gamma=g, sink_mass=MASS)
        for lines in (exact, annealed)
        for line, g in zip(lines, SINK_GAMMAS, strict=True)
    )


def draw_sinks(data: Data, canvas: Canvas) -> None:
    """To hold half of the mass a sink’s logit must grow like ln n

    Against n: logit b of a sink that takes half of the attention beside n scores s ~ N(0, γ²)

    Solid: the exact logit, from E[exp(b)/(exp(b) + Σ exp(s))] = ½. Dashed: ln n + γ²/2, as if
    the sum of the other weights were its mean. For γ ≤ 1 the two agree to 0.02 from n = 100 on;
    wide scores need less of a sink in short rows, because the sum of their weights is mostly
    well below its mean, and catch up in long ones. A sink of fixed logit loses its share in
    longer contexts. This figure is theory alone; the cross-check compares the mass itself with
    sampled rows.

    Alt text: Line chart of the logit of a sink against the number of other tokens from ten to a
    billion on a logarithmic axis. Four solid curves for spreads 1 to 4 rise to between 21 and
    29. The dashed straight lines of ln n plus half of the squared spread run on them for spread
    1 and above them at the left for the wider spreads, where they then meet.
    """
    # Drawn the exact logits solid, the annealed ones dashed.
    ax = plotting.axes(canvas, "tokens beside the sink  n", "logit of the sink  b", right=0.88)
    ax.set(xscale="log", xlim=(10, 1e9), ylim=(0, 30))
    plotting.length_ticks(ax.xaxis, 10, 1e9)
    exact, annealed = data[: len(SINK_GAMMAS)], data[len(SINK_GAMMAS) :]
    for curve, straight, look in zip(exact, annealed, plotting.LOOKS, strict=False):
        # ln n + γ²/2 is straight on these axes: its two ends are all of it
        ax.plot(straight.x, straight.theory, color=look.color, lw=1.1, ls=plotting.DASHED)
        plotting.curve(ax, curve, look)
    plotting.name_ends(ax, exact)
    limits = [("ln n + γ²/2", plotting.Look(plotting.GREY, plotting.DASHED, ""))]
    plotting.key(ax, line="exact, half of the mass", points=(), lines=limits, loc="lower right")


SINKS = Figure.from_docstring("sinks", compute_sinks, draw_sinks)

# The figure `mixing`: at its left against depth, at its right against length.
LENGTH, DEPTH = 64, 18  # left: tokens, and most layers
LAYERS, LONGEST = 8, 512  # right: layers, and most tokens
COMMON, GAMMA = 0.25, 1.0
DEEP = {"no sink": None} | {f"mass {m:g}": LayerSink(mass=m) for m in (0.5, 0.8, 0.95)}
LONG = {
    "none": None,
    "logit 3": LayerSink(logit=3.0),
    "logit 6": LayerSink(logit=6.0),
    "0.8 held": LayerSink(mass=0.8),
}
_LOOKS = plotting.LOOKS[:4], [plotting.LOOKS[i] for i in (0, 4, 5, 2)]  # one sink, one colour
SAMPLED_DEPTHS, SAMPLED_LENGTHS = (3, 6, 9, 12, 15), (8, 24, 64)
DRAWS, DIM = 160, 64


def _stack(length: int, depth: int, sink: LayerSink | None) -> Stack:
    # The law does not depend on heads and dimension; the scatter of the draws does.
    fixed = {"gamma": GAMMA, "common": COMMON, "heads": 1, "dim": DIM}
    return Stack(length=length, depth=depth, sink=sink, **fixed)


def _distance(pair: np.ndarray, norm: np.ndarray, seed: int) -> Point:
    """Return √(E‖v_n − v_{n−1}‖² / E(‖v_n‖² + ‖v_{n−1}‖²)) of draws, with its error."""
    # The root of a ratio of means. By the delta method the relative error of x̄/ȳ is the scatter of
    # x/x̄ − y/ȳ over √draws, and that of its root half as much.
    x, y = pair**2, norm**2
    value = math.sqrt(x.mean() / y.mean())
    scatter = float(np.std(x / x.mean() - y / y.mean(), ddof=1))
    error = value * scatter / (2 * math.sqrt(len(x)))
    return Point(value, error, len(x), seed, "whole stacks")


def _curve(
    label: str, x: np.ndarray, y: np.ndarray, at: Mapping[float, Point], along: str, **held: Any
) -> Series:
    log = np.log(y)
    # The points lie on x: nothing is interpolated, the entries are picked out.
    points = np.interp(list(at), x, log)
    line = Series.line(label, x, log).named(along, "distance", gamma=GAMMA, common=COMMON, **held)
    return line.with_points(points, at)


def _drawn_stacks(context: Context) -> dict[LayerSink | None, tuple[np.ndarray, np.ndarray, int]]:
    """Return ‖v_t − v_{t−1}‖ and norm of all pairs, [layers, pairs, draws], and the seed, by sink.

    The first layers and tokens of a stack are a stack too, so that one serves both panels.
    """
    sinks = list(dict.fromkeys([*DEEP.values(), *LONG.values()]))
    seeds = np.random.SeedSequence(context.seed).generate_state(len(sinks)).tolist()
    drawn = {}
    for sink, seed in zip(sinks, seeds, strict=True):
        stack = _stack(max(LENGTH, *SAMPLED_LENGTHS), max(LAYERS, *SAMPLED_DEPTHS), sink)
        stacks = sampled(stack, DRAWS, seed, dtype=np.float32, measure=neighbours)
        drawn[sink] = np.moveaxis(stacks.pair, 0, -1), np.moveaxis(stacks.norm, 0, -1), seed
    return drawn


def compute_mixing(context: Context) -> Data:
    """Compute the distance of the last two tokens against depth, then against context length."""
    drawn, curves, depths = _drawn_stacks(context), [], np.arange(DEPTH + 1.0)
    for label, sink in DEEP.items():
        pair, norm, seed = drawn[sink]
        at = {float(k): _distance(pair[k, -1], norm[k, -1], seed) for k in SAMPLED_DEPTHS}
        law = average(_stack(LENGTH, DEPTH, sink)).distance
        curves.append(_curve(label, depths, law, at, "depth", length=LENGTH, sink=label))
    lengths = np.arange(2.0, LONGEST + 1)
    shown = np.unique(np.round(np.geomspace(4, LONGEST, 80)))
    shown = np.union1d(shown, SAMPLED_LENGTHS)
    for label, sink in LONG.items():
        # Attention is causal: the first n tokens of a stack are a stack of n tokens. The pair of
        # tokens n − 1 and n is entry n − 2.
        pair, norm, seed = drawn[sink]
        y = distances(_stack(LONGEST, LAYERS, sink))[-1]
        at = {
            float(n): _distance(pair[LAYERS, n - 2], norm[LAYERS, n - 2], seed)
            for n in SAMPLED_LENGTHS
        }
        law = y[np.isin(lengths, shown)]
        curves.append(_curve(label, shown, law, at, "length", depth=LAYERS, sink=label))
    return tuple(curves)


def draw_mixing(data: Data, canvas: Canvas) -> None:
    """A sink delays mixing, but its logit must grow like ln n

    Against depth L and n: how far apart the last two tokens stay in random softmax attention

    Without a sink the last two of 64 tokens are down to a distance of ½ after 3 layers; a sink
    of value zero that takes 50 % or 80 % of the attention delays that to 9 and 53. At a fixed
    logit the sink loses its mass in a longer context, and the tokens mix again: to keep its
    mass, the logit must grow like ln n (for half of the mass, ln n + γ²/2). Distance:
    √(E‖vₙ−vₙ₋₁‖² / E(‖vₙ‖²+‖vₙ₋₁‖²)), for γ = 1 and tokens of correlation ¼. Lines: the exact
    mean. Points: Monte Carlo over whole stacks; their 95 % error bars are smaller than the
    markers.

    Alt text: Two line charts of the distance of the last two tokens, on a logarithmic scale.
    Left, against depth up to 18 layers: without a sink it falls from 0.87 to 0.01, with a sink
    of mass 0.5 to 0.2, with 0.8 or 0.95 hardly. Right, against context length up to 512 tokens,
    after 8 layers: flat at 0.1 without a sink, falling to 0.19 and 0.52 for sinks of logit 3
    and 6, flat at 0.83 where the sink keeps a mass of 0.8. Monte Carlo points lie on the
    curves.
    """
    # Drawn against depth at the left and against length at the right, on one scale.
    half = len(data) // 2
    left = plotting.panel(canvas, (0.1, 0.14, 0.29, 0.63), f"{LENGTH} tokens")
    right = plotting.panel(canvas, (0.565, 0.14, 0.29, 0.63), f"{LAYERS} layers")
    left.set(xlim=(0, DEPTH), xlabel="layers  L", ylabel="distance of last two tokens")
    left.set_xticks(range(0, DEPTH + 1, 6))
    right.set(xscale="log", xlim=(4, LONGEST), xlabel="context length  n")
    plotting.plain_ticks(right.xaxis, (4, 16, 64, 256))
    for ax, curves, looks in zip((left, right), (data[:half], data[half:]), _LOOKS, strict=True):
        ax.set(yscale="log", ylim=(6e-3, 1.3))
        plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01))
        if ax is left:
            plotting.key(ax, line="exact mean", loc="lower left", fontsize=9, handlelength=1.8)
        plotting.curves(ax, curves, looks)
        plotting.name_ends(ax, curves, looks)


MIXING = Figure.from_docstring("mixing", compute_mixing, draw_mixing, size=(7.2, 4.0))
