"""Sinks as they are: any key that takes much of the weight, and rows with all of them left out.

Three things are called by three names: the *sink key* is the one position that is looked at, as
published studies do; *sinks* are all keys that take more than `MIN_SINK_WEIGHT`; a *learned sink*
is a logit of the model beside the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsity.attention.measurement.attention_layers import Layer, LogitLayer
from sparsity.attention.measurement.row_focus import (
    SinkApart,
    measure_logit_sums,
    measure_weights,
    sum_logits,
)

# The mean weight ε above which a key is a sink. Two tokens that share a sink have less than [Gu]'s
# 0.3 each; a key under uniform attention has more than this in texts of fewer than 45 tokens only.
MIN_SINK_WEIGHT = 0.1
MAX_ENTRIES = 2**18  # of a block, as in `layers`


def find_sinks(importance: np.ndarray, epsilon: float = MIN_SINK_WEIGHT) -> np.ndarray:
    """Return which keys are sinks: mean weight over the rows that see them above ε.

    Args:
        importance: [heads, T], NaN for keys that too few rows see.
        epsilon: ε.

    Returns:
        bool [heads, T].
    """
    return np.nan_to_num(importance) > epsilon


def measure_without_sinks(
    layer: Layer,
    sinks: np.ndarray,
    rows: Mapping[str, np.ndarray],
    sink: int | None,
) -> dict[str, np.ndarray]:
    """Measure every row without its sinks, by the weights and logits of the keys that are left.

    Args:
        layer: the layer.
        sinks: which keys are left out, [heads, T].
        rows: its rows by name, as `measure_layer` has them: with the sink key, and without it.
        sink: position of that key; None for the first that each row sees.

    Returns:
        By name, in the precision of the layer, [heads, T]: length_without_sinks, the keys left;
        n_eff_without_sinks and S_without_sinks, NaN where none is; all_sinks_mass, the weight p of
        all sinks in sight together, and of the learned one; of logits also gamma_without_sinks, NaN
        for one key, top_logit_without_sinks, the largest less the mean, and all_sinks_logit,
        log Σ e^s over the sinks in sight less the mean of the others, NaN where there are none.
    """
    sink = layer.first if sink is None else sink
    seen = layer.rows_that_see(sink) if isinstance(sink, int) else np.zeros((1, 1), bool)
    reused, several = reuse_rows(rows, sinks, sink, seen)
    if several.size:
        part, step = layer.part(several), layer.rows_per_block(MAX_ENTRIES)
        for start in range(0, layer.shape[1], step):
            stop = min(start + step, layer.shape[1])
            for name, values in _measure_block(part, sinks[several], start, stop).items():
                reused[name][several, start:stop] = values
    return {name: x.astype(rows["S"].dtype) for name, x in reused.items()}


def reuse_rows(
    rows: Mapping[str, np.ndarray], sinks: np.ndarray, sink: Any, seen: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return rows without sinks of heads that have none, or none but the sink key.

    Most heads are such, and are measured without that key already.

    Args:
        rows: as `measure_without_sinks` takes them.
        sinks: which keys are sinks, [heads, T].
        sink: position of the sink key; else it is not the same in all rows.
        seen: which rows see it, [1 or heads, T].

    Returns:
        The rows, and the heads with other sinks, which are to be measured again.
    """
    more = sinks.copy()
    if isinstance(sink, int):
        more[:, sink] = False
        is_sink = sinks[:, sink, None]
    else:  # a sink may be the first key of some rows and not of others
        is_sink, seen = np.zeros((len(sinks), 1), bool), np.zeros((1, 1), bool)
    learned = rows.get("learned_sink_mass", 0 * rows["sink_mass"])
    reused = {
        "length_without_sinks": rows["length"] - (is_sink & seen),
        "all_sinks_mass": np.where(is_sink, rows["sink_mass"], learned),
    }
    for name in ("n_eff", "S", "gamma"):
        if name in rows:
            without = rows[f"{name}_without_sink_key"]
            reused[f"{name}_without_sinks"] = np.where(is_sink, without, rows[name])
    if "sink_logit" in rows:
        logit, top = rows["sink_logit"], rows["top_logit_without_sink_key"]
        reused["all_sinks_logit"] = np.where(is_sink, logit, np.nan)
        # Heads without any sink: the largest of the whole row less the mean of the whole row. Both
        # are known less the mean of the others, from which the sink key moves the mean by δ/n; a
        # row of one key is its own mean.
        n = rows["length"]
        whole = np.fmax(top, logit) - np.nan_to_num(logit) / np.maximum(n, 1)
        whole = np.where(n == 1, 0.0, whole)
        reused["top_logit_without_sinks"] = np.where(is_sink, top, whole)
    return reused, np.flatnonzero(more.any(1))


def _measure_block(layer: Layer, sinks: np.ndarray, start: int, stop: int) -> dict[str, np.ndarray]:
    """Measure some rows; sums run over the keys that are left alone, so that nothing cancels.

    Args:
        layer: the heads that have sinks beside the sink key.
        sinks: which keys are left out, [heads, T].
        start: the first row.
        stop: the row after the last.
    """
    width = layer.key_width(stop, 0)
    x, seen = (np.asarray(y) for y in layer.block(start, stop, width))
    keep = seen & ~sinks[:, None, :width]
    few = np.flatnonzero(sinks[:, :width].any(0))  # keys that are a sink in any head
    drop = seen[..., few] & sinks[:, None, few]
    if isinstance(layer, LogitLayer):
        # The sinks as one key, of the logit ln Σ e^s.
        logits = np.where(drop, x[..., few], -np.inf)
        of_sinks = np.logaddexp.reduce(logits, axis=-1, initial=-np.inf)
        learned = None if layer.learned_sinks is None else layer.learned_sinks[:, None]
        sums = sum_logits(x, keep)
        statistics = name_without_sinks(
            measure_logit_sums(sums, np.asarray(of_sinks, np.float64), learned)
        )
    else:
        held = np.where(drop, np.abs(x[..., few]), 0.0).sum(-1)
        statistics = name_without_sinks(measure_weights(SinkApart(x, held, keep, drop.any(-1)))[0])
    return statistics | {"length_without_sinks": keep.sum(-1)}


def name_without_sinks(statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is known of rows whose sinks count as one key, by the names without all sinks."""
    tag = "_without_sink_key"
    named = {k.replace(tag, "_without_sinks"): x for k, x in statistics.items() if tag in k}
    named["all_sinks_mass"] = statistics["sink_mass"]
    if "sink_logit" in statistics:
        named["all_sinks_logit"] = statistics["sink_logit"]
    return named


def list_sinks(importance: np.ndarray, words: Sequence[str]) -> list[dict[str, Any]]:
    """List the keys that are a sink of some head: position from 1, token, heads, weight in these.

    Args:
        importance: [..., T], NaN for keys that too few rows see.
        words: the token at each position.
    """
    flat = importance.reshape(-1, importance.shape[-1])
    above, listed = find_sinks(flat, MIN_SINK_WEIGHT), []
    for key in np.flatnonzero(above.any(0)).tolist():
        weights = flat[above[:, key], key]
        one = {"position": key + 1, "token": words[key], "heads": len(weights)}
        listed.append(one | {"importance": float(weights.mean())})
    return listed


def spell_token(token: str) -> str:
    """Spell a token as a reader knows it.

    Vocabularies of bytes write a space as Ġ, a line's end as Ċ and a tab as ĉ; SentencePiece writes
    a space as ▁.
    """
    text = token.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "↵").replace("ĉ", "⇥")
    return text.strip() or "␣"
