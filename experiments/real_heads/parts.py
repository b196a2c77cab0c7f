"""Heads of a model over several texts: their rows, the parts of these, what makes the tail.

The scores of one head are taken apart as s_ij = (row) + β_(i−j) + κ_j + ε_ij. β, the distance
profile, comes from *other* texts; κ, the key bias, from queries at least `gap` positions after the
query, so that neither has seen the row it is taken from. ε, the content, is the remainder.

All rows of logits here lie along the last axis, have mean zero over the keys they see, and are 0
elsewhere; the first key, a sink, is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray

from experiments.layerwise import Inside, run_layers
from experiments.real_model import Model
from sparsity import metric

NEAREST = 4  # keys, the nearest, that are left out
TAIL = 0.05  # share of the keys that is the upper tail
# Mean weight of a key from which on it is left out as a sink; lower than the package's 0.1,
# so that the remaining rows have none. Lower still would leave out keys that the head reads.
SINK_WEIGHT = 0.05
SWEEPS = 2  # of profile given key bias, and key bias given profile; a third changes little


def measure_heads(
    model: Model,
    texts: Mapping[str, str],
    *,
    tokens: int = 512,
    every: int = 1,
    step: int = 16,
    gap: int = 64,
) -> xarray.Dataset:
    """Run the first tokens of texts through a model and take the rows of its heads apart.

    Args:
        model: the model.
        texts: by name, two or more: parts are estimated on other texts.
        tokens: T of each text.
        every: layers 0, `every`, 2·`every` … are looked at.
        step: rows of the second half at that distance are.
        gap: queries that much later tell the key bias; see `split_scores`.

    Returns:
        The figures of `head_figures` over text, layer, head and row.
    """
    # Rows of the second half; `gap`/2 queries are left for the key bias of the last of them.
    rows = np.arange(tokens // 2 + step // 2, tokens - gap - gap // 2, step)
    # Parts need all texts, so a layer waits for them; texts pass it one after the other.
    waiting: list[Inside] = []
    layers: list[dict[str, np.ndarray]] = []

    def show(layer: int, text: int, inside: Inside) -> None:
        if layer % every:
            return
        waiting.append(inside)
        if len(waiting) < len(texts):
            return
        queries, keys = (
            np.stack([getattr(x, name) for x in waiting]) for name in ("queries", "keys")
        )
        waiting.clear()
        layers.append(_figures_of_layer(queries, keys, rows, gap))

    ids = [np.array(model.encode(text)[:tokens]) for text in texts.values()]
    run_layers(model.llama, ids, show=show)
    axes = ("text", "layer", "head", "row")
    variables = {x: (axes, np.stack([layer[x] for layer in layers], axis=1)) for x in layers[0]}
    return xarray.Dataset(variables, coords={"text": list(texts), "row": rows + 1})


def _figures_of_layer(
    queries: np.ndarray, keys: np.ndarray, rows: np.ndarray, gap: int
) -> dict[str, np.ndarray]:
    """Return the figures of all heads, [text, head, row], of q and k [text, heads, T, d]."""
    heads = []
    for head in range(queries.shape[1]):
        own_keys = keys[:, head // (queries.shape[1] // keys.shape[1])]
        s = np.matmul(queries[:, head], own_keys.swapaxes(1, 2)) / queries.shape[-1] ** 0.5
        parts = split_scores(s, rows, gap)
        # The sink key's logit less the mean of the others, which `seen` holds without it.
        first = s[:, rows, 0] - s[:, rows].mean(-1, where=parts.seen)
        heads.append(head_figures(parts, first, gap, head))
    return {name: np.stack([x[name] for x in heads], axis=1) for name in heads[0]}


@dataclass(frozen=True)
class ScoreParts:
    """Some rows of one head, [texts, rows, keys]; each part has mean zero over the keys seen.

    Args:
        scores: the logits.
        profile: β_(i−j) of the other texts.
        bias: κ_j of later queries.
        seen: which keys a row sees, without the first, [rows, keys]; elsewhere all are 0.
        distance: i − j, [rows, keys].
    """

    scores: np.ndarray
    profile: np.ndarray
    bias: np.ndarray
    seen: np.ndarray
    distance: np.ndarray

    @property
    def content(self) -> np.ndarray:
        """The content ε: the scores without profile and key bias."""
        return self.scores - self.profile - self.bias


def split_scores(scores: Any, rows: np.ndarray, gap: int = 64) -> ScoreParts:
    """Estimate the parts of a head across texts.

    Args:
        scores: logits of causal attention [texts, T, T], two texts or more, row i by column j.
        rows: the positions i that are looked at, T − `gap` at most.
        gap: how much later than i the queries are that κ_j is taken from, and from which row on
            the profile is.
    """
    scores = np.asarray(scores)
    texts, length = scores.shape[:2]
    at = np.arange(length)
    distance = at[:, None] - at
    seen = (distance >= 0) & (at > 0)  # the first key is a sink
    c = centre_rows(scores, seen)
    far = seen & (distance >= gap)
    count = np.maximum(length - np.maximum(gap, at + 1), 0)  # rows from `gap` on with that distance
    bias, sums = np.zeros((texts, 1, length), c.dtype), np.zeros((texts, length), c.dtype)
    # Profile and key bias of each text by itself, each given the other in turn (backfitting):
    # fitted alone, the profile would take the mean bias of the keys at each distance with it.
    for sweep in range(SWEEPS):
        if sweep:
            profile = sums / np.maximum(count, 1).astype(c.dtype)
            left = np.where(far, c - view_by_distance(profile), 0)
            bias = left.sum(1, keepdims=True) / np.maximum(far.sum(0), 1).astype(c.dtype)
        own = np.where(seen, c - bias, 0)
        own[:, :gap] = 0
        sums = sum_by_distance(own)
    # What is subtracted from a text has not seen it: its profile is the mean of the others.
    profile = sum_of_others(sums) / np.maximum((texts - 1) * count, 1).astype(c.dtype)
    profile = view_by_distance(profile)
    left = np.where(seen, c - profile, 0)
    # κ_j of row i: the mean over the queries from i + gap on.
    later = np.stack([left[:, i + gap :].mean(1) for i in rows], axis=1)
    seen = seen[rows]
    return ScoreParts(
        scores=c[:, rows],
        profile=centre_rows(profile[:, rows], seen),
        bias=centre_rows(later, seen),
        seen=seen,
        distance=distance[rows],
    )


def centre_rows(x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return rows less their mean over what they see; 0 elsewhere."""
    x = np.where(seen, x, 0)
    mean = x.sum(-1, keepdims=True) / np.maximum(seen.sum(-1, keepdims=True), 1).astype(x.dtype)
    return np.where(seen, x - mean, 0)


def sum_by_distance(x: np.ndarray) -> np.ndarray:
    """Return the sums over i of x[…, i, i − d], at d = 0 … T − 1.

    Args:
        x: [texts, T, T], 0 where j > i.
    """
    texts, length, _ = x.shape
    wide = np.zeros((texts, length, 2 * length), x.dtype)
    wide[..., :length] = x[..., ::-1]
    # Read with rows one shorter, what was a diagonal is a column.
    skew = wide.reshape(texts, -1)[:, : length * (2 * length - 1)]
    return skew.reshape(texts, length, -1).sum(1)[:, length - 1 :]


def view_by_distance(profile: np.ndarray) -> np.ndarray:
    """Return the view [texts, i, j] of profile[texts, i − j]; 0 where j > i."""
    length = profile.shape[-1]
    # A Toeplitz matrix as windows of its profile, reversed: no T × T array is made.
    padded = np.pad(profile[:, ::-1], ((0, 0), (0, length - 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, length, axis=-1)[:, ::-1]


def sum_of_others(x: np.ndarray) -> np.ndarray:
    """Return for each text the sum over all other texts."""
    return x.sum(0, keepdims=True) - x


def head_figures(
    parts: ScoreParts, first: np.ndarray, gap: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the figures of rows, [texts, rows]; the first key is not in the row.

    Those of `row_figures`, and `length_without_sink_key`; γ̂, S and the count of the keys without
    the nearest ones and without any sink ("clear"), γ̂ and S of the content, and S of the row's
    logits shrunk to the spread of the content ("shape").

    Args:
        parts: of the head.
        first: logits of the first key, [texts, rows], less the mean of the others.
        gap: how far from every row a key is, at least, that is left out as a sink.
        seed: of the Gaussian rows.
    """
    c, seen, content = parts.scores, parts.seen, parts.content
    found = row_figures(c, seen, parts.distance, np.random.default_rng(seed))
    # Sinks: keys that take more than `SINK_WEIGHT` of all rows' weight, the first key's counted.
    top = np.maximum(np.where(seen, c, -np.inf).max(-1), first)[..., None]
    # The first key is beside the row, as `first`, and has its part in the sum that p is a share of.
    a = np.where(seen, np.exp(c - top), 0)
    p = a / (a.sum(-1, keepdims=True) + np.exp(first[..., None] - top))
    sinks = (p.mean(1) > SINK_WEIGHT) & (parts.distance >= gap).all(0)
    clear = seen & ~(parts.distance < NEAREST) & ~sinks[:, None]
    gamma = row_gamma(content, seen)
    # Spread or shape? The row's own logits at the spread of the content keep their shape.
    shrunk = c * (gamma / found["gamma_without_sink_key"])[..., None]
    return (
        found
        | _gamma_and_S("clear", c, clear)
        | {
            "length_without_sink_key": np.broadcast_to(seen.sum(-1), first.shape),
            "length_clear": clear.sum(-1),
            "gamma_content": gamma,
            "S_content": row_sparsity(content, seen),
            "S_shape": row_sparsity(shrunk, seen),
        }
    )


def row_figures(
    c: np.ndarray, seen: np.ndarray, distance: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return figures of any rows of logits, each [..., rows].

    γ̂ and S of the row, its largest logit, the distance of that key ("nearest") and the correlation
    of logits one key apart ("lag"). And γ̂ and S without the nearest keys ("far"), without as many
    in the middle ("mid"), of a Gaussian row with the upper tail of this one ("tail"), and of this
    one with the upper tail of a Gaussian row ("body").

    Args:
        c: logits [..., rows, keys].
        seen: which keys the rows see, [rows, keys].
        distance: of key and query, [rows, keys].
        rng: draws the Gaussian rows.
    """
    # Without the nearest keys a row is also shorter. `mid` leaves out as many keys where nothing is
    # special about them, to tell what the length alone does.
    best = np.where(seen, c, -np.inf).argmax(-1)
    at = np.broadcast_to(distance, c.shape)
    n = seen.sum(-1, keepdims=True)
    rank = np.cumsum(seen, -1) - (n // 2)
    middle = seen & ~((rank > 0) & (rank <= NEAREST))
    gamma = row_gamma(c, seen)
    pairs = (c[..., 1:] * c[..., :-1]).sum(-1)
    found = {
        "gamma_without_sink_key": gamma,
        "S_without_sink_key": row_sparsity(c, seen),
        "top_logit_without_sink_key": np.where(seen, c, -np.inf).max(-1),
        "nearest": np.take_along_axis(at, best[..., None], -1)[..., 0],
        "lag": pairs / np.maximum((c * c).sum(-1), np.finfo(c.dtype).tiny),
    }
    found |= _gamma_and_S("far", c, seen & (distance >= NEAREST))
    found |= _gamma_and_S("mid", c, middle)
    # The upper tails of the row and of a Gaussian one of its γ̂, exchanged: does the tail or the
    # body make S differ from a Gaussian row's? Both are sorted, so that the tail is the first 5 %.
    inside = np.broadcast_to(np.arange(c.shape[-1]) < n, c.shape)
    normal = rng.standard_normal(c.shape, np.float32) * gamma[..., None]
    own, other = (
        -np.sort(-np.where(shown, x, -np.inf), axis=-1)
        for x, shown in ((c, seen), (normal, inside))
    )
    tail = np.arange(c.shape[-1]) < np.ceil(TAIL * n)
    found |= _gamma_and_S("tail", np.where(tail, own, other), inside)
    return found | _gamma_and_S("body", np.where(tail, other, own), inside)


def row_gamma(c: np.ndarray, seen: Any) -> np.ndarray:
    """Return γ̂, of n − 1 degrees of freedom."""
    return np.sqrt((c * c).sum(-1) / (seen.sum(-1) - 1).astype(c.dtype))


def row_sparsity(c: np.ndarray, seen: Any) -> np.ndarray:
    """Return S of softmax weights."""
    top = np.where(seen, c, -np.inf).max(-1, keepdims=True)
    with np.errstate(under="ignore"):
        a = np.where(seen, np.exp(np.where(seen, c - top, 0)), c.dtype.type(0))
        n_eff = metric.effective(a.sum(-1), (a * a).sum(-1))
        return np.sqrt(n_eff / seen.sum(-1).astype(c.dtype))


def _gamma_and_S(name: str, c: np.ndarray, seen: Any) -> dict[str, np.ndarray]:
    """Return γ̂ and S of the rows over the keys in `seen` alone."""
    c = centre_rows(c, seen)
    return {f"gamma_{name}": row_gamma(c, seen), f"S_{name}": row_sparsity(c, seen)}
