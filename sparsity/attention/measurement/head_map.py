"""The map of one head, token by token, with the focus of its rows beside the exact law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import metric
from sparsity.arguments import reals, several, text
from sparsity.attention.measurement import row_laws
from sparsity.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMED = 48  # tokens beside the map: more cannot be read
_LONGEST_NAME = 10  # letters of a token
_MOST_TOKENS = 4096  # beyond, a cell is far below a pixel
_UNEQUAL = 1e-3  # of a row's sum off 1: half precision is off by less
_SMALLEST = 0.05  # of the largest weight, the root of which is the palest shade that can be seen


def rows_beside_law(weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return of each row n, measured n_eff, and what the exact law says at its own n and γ̂.

    The logits of a row are ln p but for a constant, which falls out of their spread γ̂.

    Args:
        weights: [queries, keys], each row a distribution, 0 where a key is not seen.

    Returns:
        `n`, `n_eff`, `n_eff_exact` and `n_eff_exact_without_first`, whose γ̂ leaves out the first
        key that the row sees and whose n_eff is that of the rest, with `n_eff_without_first`
        measured; NaN where a row has too few keys.
    """
    seen = weights > 0
    n = seen.sum(-1)
    first = np.arange(weights.shape[-1]) == seen.argmax(-1)[:, None]
    found: dict[str, np.ndarray] = {"n": n}
    for name, kept in (("", seen), ("_without_first", seen & ~first)):
        p, count = np.where(kept, weights, 0.0), kept.sum(-1)
        logits = np.log(np.where(kept, weights, 1.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = logits.sum(-1) / count
            squares = (np.where(kept, logits - mean[:, None], 0.0) ** 2).sum(-1)
            gamma = np.sqrt(squares / (count - 1))
        some = count > 1
        found["n_eff" + name] = np.full(len(n), np.nan)
        found["n_eff" + name][some] = metric.n_eff(p[some])
        exact = np.full(len(n), np.nan)
        exact[some] = count[some] * row_laws.exact_law(count[some], gamma[some]) ** 2
        found["n_eff_exact" + name] = exact
    return found


def plot_head(
    weights: Any,
    tokens: Sequence[str] | None = None,
    *,
    title: str | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Draw the attention of one head, query by key, and beside it the n_eff of each query's row.

    On the left a cell is darker the larger the weight (by its root, so that small ones show; white
    is 0). On the right, at the height of its query, a point is the measured n_eff of the row and a
    line what the exact law says of Gaussian logits of the row's own n and γ̂; hollow points and the
    thin line leave out the first key that the row sees, where sinks are.

    Args:
        weights: [queries, keys], rows that sum to 1, 0 where a key is not seen: one head of what
            `output_attentions=True` gives in transformers, or of `models.llama.layers(…, show=)`.
        tokens: names of the keys, of which the last are the queries; None for their positions.
        title: in place of the default one, which says what was found.
        figure: the Matplotlib figure to draw into; None makes a new one of pyplot.

    Returns:
        The figure. Nothing is shown or saved.

    Raises:
        InputError: no matrix of weights, or tokens that do not fit.
    """
    if title is not None:
        text("title", title, "give a text")
    p = np.asarray(reals("weights", weights), np.float64)
    if p.ndim != 2 or not 2 <= p.shape[0] <= p.shape[1] <= _MOST_TOKENS:
        fix = f"give one head, [queries, keys], of at most {_MOST_TOKENS} keys"
        raise InputError("weights", f"array of shape {p.shape}", fix)
    total = p.sum(-1)
    if not (np.isfinite(p).all() and (p >= 0).all() and (abs(total - 1) < _UNEQUAL).all()):
        fix = "give weights >= 0 whose rows sum to 1"
        raise InputError("weights", f"rows that sum to {total.min():.4g} … {total.max():.4g}", fix)
    if tokens is not None:
        tokens = [str(x) for x in several("tokens", tokens, "give one text for each key")]
        if len(tokens) != p.shape[1]:
            raise InputError("tokens", f"{len(tokens)} texts", f"give one for each of {p.shape[1]}")
    found = rows_beside_law(p)

    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    from sparsity.plotting import BLUE, TOKENS, VERMILLION, calm, plain_ticks

    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(9.2, 5.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1), sharey=True)
    first = p.shape[1] - p.shape[0]
    queries = np.arange(first, p.shape[1])
    colors = LinearSegmentedColormap.from_list("weights", ["#ffffff", "#9ec9e8", BLUE, "#0b2545"])
    extent = (-0.5, p.shape[1] - 0.5, queries[-1] + 0.5, queries[0] - 0.5)
    image = left.imshow(
        p, cmap=colors, norm=PowerNorm(0.5, 0, max(float(p.max()), _SMALLEST)),
        extent=extent, aspect="auto", interpolation="nearest",
    )  # fmt: skip
    figure.colorbar(image, ax=left, location="top", label="weight p", fraction=0.05, aspect=40)
    left.set(xlabel="key", ylabel="query")
    if tokens is not None and len(tokens) <= _MOST_NAMED:
        names = [x if len(x) <= _LONGEST_NAME else x[: _LONGEST_NAME - 1] + "…" for x in tokens]
        left.set_xticks(range(len(names)), names, rotation=90, fontsize=7, parse_math=False)
        left.set_yticks(queries, names[first:], fontsize=7, parse_math=False)
    calm(right, "#8a8f9833")
    without = "_without_first"
    right.plot(found["n_eff_exact"], queries, color=BLUE, lw=2, label="exact law")
    right.plot(found["n_eff_exact" + without], queries, color=BLUE, lw=1, label="without first key")
    dots = {"linestyle": "none", "marker": "o", "color": VERMILLION}
    right.plot(found["n_eff"], queries, ms=4, label="measured", **dots)
    hollow = {"ms": 3.5, "fillstyle": "none", "label": "without first key"}
    right.plot(found["n_eff" + without], queries, **dots, **hollow)
    right.set(xscale="log", xlabel=TOKENS)
    low, high = right.get_xlim()
    ticks = [m * 10**k for k in range(5) for m in (1, 2, 5) if low <= m * 10**k <= high]
    plain_ticks(right.xaxis, ticks)
    right.legend(frameon=False, fontsize=8, loc="upper right")
    figure.suptitle(title if title is not None else _finding(found), fontsize=12, parse_math=False)
    return figure


def _finding(found: dict[str, np.ndarray]) -> str:
    """Say of the last row what was measured and what the exact law says."""
    n, real, law = (found[name][-1] for name in ("n", "n_eff", "n_eff_exact"))
    rest, rest_law = (found[f"{name}_without_first"][-1] for name in ("n_eff", "n_eff_exact"))
    return (
        f"The last of {n} tokens attends to {real:.3g} (exact law {law:.3g}); "
        f"but for the first key to {rest:.3g} (law {rest_law:.3g})"
    )
