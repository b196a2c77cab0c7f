"""Why 0.1: it keeps what softmax attends to as the context grows

Against n: n_eff of softmax rows of spread γ₀ at 8192 tokens; the factor that keeps it

Left, γ₀ = 3: without a temperature a row attends to 38 tokens of 8192 and to 3984 of 10⁷. Llama 4's
rule, 1 + 0.1·ln(1 + ⌊n/8192⌋), keeps it between 28 and 41; its floor makes a sawtooth, which begins
at 8192 tokens. Log-n, max(1, ln n/ln 8192), lets it fall slowly; SSMax with s = 1/ln 8192 differs
from it below 8192 alone. YaRN's factor stands on q and on k, so squared on the scores, and focuses
more and more. Scale-invariant attention is made for scores of unit spread; at γ₀ = 3 it leaves two
tokens. Right: the factor at which rows r times as long as 8192 tokens have the same n_eff, for
three spreads, beside 1 + 0.1·ln r. Lines: the exact law of independent Gaussian scores. Points:
Monte Carlo with whole rows; their 95 % error bars are smaller than the markers.

Alt text: Three line charts with logarithmic x-axes. Top left, effective tokens against row
length from 512 to ten million: without a temperature they rise from 10 to 3984; under Llama 4's
rule they fall from 38 to 28 at 8192 tokens and then stay between 28 and 41; log-n falls to 25 and
YaRN to 4; the scale-invariant rule stays at 2. Monte Carlo points lie on the curves. Below it the
same from 2048 to 131072 tokens, where the rule's curve has a tooth at each multiple of 8192. Right,
factors against the ratio of lengths from 1 to 128: for spreads 2, 3 and 4 they rise to 1.69, 1.48
and 1.40, and the dashed line of the rule runs on the middle one.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from sparsity import plotting
from sparsity.design_search import design
from sparsity.exact_law.exact import exact
from sparsity.output import length_label
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.row import Row
from sparsity.rows.steps import FloorLog, LogLength, ScalableSoftmax, ScaleInvariant, Yarn
from sparsity.sampling.row_sampling import sample_rows
from sparsity.series import Point, Series

TRAINED, GAMMA = 8192, 3.0
LENGTHS = np.unique(np.round(np.geomspace(512, 1e7, 29)).astype(int))
TEETH = range(1, 25)  # multiples of the trained length, each with the length before it
FEW = np.array([512, 1024])  # of the rule that depends on the distance, whose law takes seconds
RATIOS = np.unique(np.round(np.geomspace(1, 128, 22)).astype(int))
GAMMAS = (2.0, 3.0, 4.0)
# Rule -> lengths of sampled rows.
SAMPLED: dict[str, tuple[int, ...]] = {
    "none": (2048, 16384),
    "Llama 4": (TRAINED - 1, TRAINED, 32768),
    "log-n": (32768,),
    "SSMax": (2048,),
    "YaRN": (32768,),
    "scale-inv.": (1024,),
}
REL_ERROR = 1e-2  # of n_eff: a whole row is one draw
_RULE = "1 + 0.1·ln r"


def _row(rule: str, length: int) -> Row:
    """Return the row under a rule; YaRN's is that of a context of just this length."""
    steps: dict[str, Any] = {
        "none": (),
        "Llama 4": (FloorLog(0.1, TRAINED, 1),),
        "log-n": (LogLength(TRAINED),),
        "SSMax": (ScalableSoftmax(1 / np.log(TRAINED)),),
        "YaRN": (Yarn(max(1.0, length / TRAINED)),),
        "scale-inv.": (ScaleInvariant(10.0),),
    }
    return Row("exp", gamma=GAMMA, steps=steps[rule])


@functools.lru_cache(256)  # lengths that are drawn lie on the line, too; one law takes seconds
def _log_n_eff_at(rule: str, length: int) -> float:
    return float(exact(_row(rule, length), length=length).log_value)


def _log_n_eff(rule: str, lengths: Any) -> np.ndarray:
    return np.array([_log_n_eff_at(rule, int(n)) for n in lengths])


def _lengths(rule: str) -> np.ndarray:
    if rule == "scale-inv.":
        return FEW
    teeth = [m * TRAINED - before for m in TEETH for before in (1, 0)]
    # Beyond the teeth that are drawn the line would miss them by their height, under 0.5 %.
    return np.union1d(LENGTHS, teeth) if rule == "Llama 4" else np.union1d(LENGTHS, [TRAINED])


def data(context: Context) -> Data:
    """Compute n_eff against n under each rule with sampled rows, then the factors against r."""
    found = []
    for rule, sampled in SAMPLED.items():
        points = {}
        for n in sampled:
            settings = context.sampling("temperature", rule, n, rel_error=REL_ERROR)
            drawn = sample_rows(_row(rule, n), n, replace(settings, max_samples=1e7))
            points[float(n)] = Point.of(drawn)
        lengths = _lengths(rule)
        line = Series.line(rule, lengths, _log_n_eff(rule, lengths))
        line = line.named("length", "n_eff", "tokens", kernel="exp", gamma=GAMMA, rule=rule)
        found.append(line.with_points(_log_n_eff(rule, sampled), points))
    # The factors that the rules try to be.
    lengths = [int(TRAINED * r) for r in RATIOS]
    for gamma in GAMMAS:
        # A factor on scores of spread γ makes their spread factor·γ: the factor that keeps n_eff is
        # the spread that a design asks for, over γ.
        wanted = float(exact("exp", length=TRAINED, gamma=gamma).value)
        asked = design("exp", length=TRAINED, n_eff=wanted, lengths=lengths).requirements
        factors = np.array([row.value for row in asked], float) / gamma
        line = Series.of_values(f"γ₀ = {gamma:g}", RATIOS, factors)
        found.append(line.named("extension", "factor", kernel="exp", gamma=gamma))
    rule = Series.of_values(_RULE, RATIOS, 1 + 0.1 * np.log(RATIOS))
    return (*found, rule.named("extension", "factor", rule="YaRN"))


def draw(data: Data, canvas: Canvas) -> None:
    """Draw n_eff with its teeth apart at the left, and the factors with the rule at the right."""
    rules, factors, rule = data[: len(SAMPLED)], data[len(SAMPLED) : -1], data[-1]
    looks = plotting.LOOKS
    left = plotting.panel(canvas, (0.08, 0.5, 0.37, 0.33), f"{plotting.TOKENS}, γ₀ = 3")
    left.set(xscale="log", yscale="log", xlim=(512, 1e7), ylim=(1.4, 6e3))
    _name_lengths(left, 2**10, 2**13, 2**17, 2**20, 2**23)
    plotting.plain_ticks(left.yaxis, (10, 100, 1e3))
    plotting.curves(left, rules, looks)
    plotting.key(left, line="exact law", loc="upper left")
    none, *others, scale_invariant = rules
    named = (replace(none, label="no rule"), *others)
    plotting.name_ends(left, named, looks)
    x, y = 1.25 * scale_invariant.x[-1], scale_invariant.theory[-1]
    plotting.inline(left, x, y, scale_invariant.label, looks[5].color, ha="left")
    teeth = plotting.panel(canvas, (0.08, 0.115, 0.37, 0.255), "the same, one tooth each 8K tokens")
    teeth.set(xscale="log", xlim=(2048, 131072), ylim=(24, 44), xlabel="row length  n")
    _name_lengths(teeth, 2**11, 2**13, 2**15, 2**17)
    teeth.set_yticks((25, 30, 35, 40))
    for i in (2, 1):
        plotting.curve(teeth, rules[i], looks[i], points=False)
    plotting.name_ends(teeth, [_until(rules[i], 131072) for i in (1, 2)], looks[1:])
    before, at = (float(rules[1].theory[rules[1].x == n][0]) for n in (TRAINED - 1, TRAINED))
    tooth = f"{before:.1f} at {TRAINED - 1}", f"{at:.1f} at {TRAINED}"
    plotting.inline(teeth, 7900, 40.8, tooth[0], looks[1].color, ha="right", fontsize=9.5)
    plotting.inline(teeth, 8600, 26, tooth[1], looks[1].color, ha="left", fontsize=9.5)
    right = plotting.panel(canvas, (0.66, 0.115, 0.23, 0.715), "factor that keeps n_eff")
    right.set(xscale="log", xlim=(1, 128), ylim=(1, 1.75), xlabel="extension  r = n/8K")
    plotting.plain_ticks(right.xaxis, (1, 4, 16, 64))
    looks = [plotting.LOOKS[i] for i in (5, 0, 3)]
    plotting.curves(right, factors, looks)
    plotting.name_ends(right, factors, looks)
    right.plot(rule.x, rule.theory, color=plotting.INK, lw=1.6, ls=plotting.DASHED, zorder=4)
    plotting.inline(right, 25, 1.12, f"dashed:\n{_RULE}", plotting.INK, fontsize=9.5)


def _name_lengths(ax: plotting.Axes, *lengths: int) -> None:
    """Set ticks of the lengths of rows."""
    plotting.plain_ticks(ax.xaxis, lengths, list(map(length_label, lengths)))


def _until(series: Series, end: float) -> Series:
    """Return the curve up to some x, where its label goes."""
    inside = series.x <= end
    return replace(series, x=series.x[inside], theory=series.theory[inside])


FIGURE = Figure.from_docstring("temperature", data, draw, __doc__, size=(7.2, 5.6))
