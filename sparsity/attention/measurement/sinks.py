"""Sinks as they are: any key that takes more than ε of the weight, and all of them left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsity.attention.measurement import asked
from sparsity.attention.measurement.sources import Logits, Source, at_once, of_heads, sees, width

# Two tokens that share a sink have less than [Gu]'s 0.3 each; a key under uniform attention has
# more than this in texts of fewer than 45 tokens only.
EPSILON = 0.1
_BLOCK = 2**18  # entries of a block


def found(importance: np.ndarray, epsilon: float = EPSILON) -> np.ndarray:
    """Which keys are sinks: mean weight over the rows that see them above ε.

    Args:
        importance: [heads, T], NaN for keys that too few rows see.
        epsilon: ε.

    Returns:
        bool [heads, T].
    """
    return np.nan_to_num(importance) > epsilon


def _block(
    source: Source, sinks: np.ndarray, of: Sequence[str], start: int, stop: int
) -> dict[str, np.ndarray]:
    """Some rows; sums run over the other keys alone, so that nothing cancels."""
    wide = width(source, stop, 0)
    x, seen = (np.asarray(y) for y in source.block(start, stop, wide))
    keep = seen & ~sinks[:, None, :wide]
    few = np.flatnonzero(sinks[:, :wide].any(0))  # keys that are a sink in any head
    drop = seen[..., few] & sinks[:, None, few]
    n, sunk = keep.sum(-1), drop.any(-1)
    some, count = n > 0, np.maximum(n, 1)
    out: dict[str, Any] = {"length_others": n}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        if isinstance(source, Logits):
            mean = np.where(keep, x, 0.0).sum(-1) / count
            away = np.where(keep, x - mean[..., None], 0.0)
            square = np.square(away, out=away).sum(-1)
            out["gamma_others"] = np.sqrt(np.where(n > 1, square / (n - 1), np.nan))
            left = np.where(keep, x, -np.inf)
            top = np.where(some, left.max(-1, initial=-np.inf), 0.0)
            out["top_logit_others"] = np.where(some, top - mean, np.nan)
            out |= {f"{k}_others": v for k, v in asked.shape(x, keep, of).items() if k in of}
            a = np.exp(left - top[..., None])
            of_sinks = np.logaddexp.reduce(
                np.where(drop, x[..., few], -np.inf), axis=-1, initial=-np.inf
            )
            out["sinks_logit"] = np.where(sunk & some, of_sinks - mean, np.nan)
            held = np.exp(np.float64(of_sinks - top))
            if source.units is not None:
                held = held + np.exp(source.units[:, None] - np.float64(top))
        else:
            a = np.where(keep, np.abs(x), 0.0)
            held = np.where(drop, np.abs(x[..., few]), 0.0).sum(-1)
        total, square = a.sum(-1), np.square(a).sum(-1)
        # Weights of 0 alone have no p; a sink above the range of numbers has all of it.
        mass = np.where(np.isinf(held), 1.0, held / (held + total))
        out["sinks_mass"] = np.where(some | sunk, mass, np.nan)
        n_eff = np.clip(total * total / square, 1.0, count)
        out["n_eff_others"] = np.where(total > 0, n_eff, np.nan)
        out["S_others"] = np.sqrt(out["n_eff_others"] / count)
    return out


def without(
    source: Source,
    sinks: np.ndarray,
    rows: Mapping[str, np.ndarray],
    sink: int | None,
    of: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Every row without its sinks, whose weights and logits are those of the keys that are left.

    Args:
        source: the layer.
        sinks: which keys are left out, [heads, T].
        rows: its rows by name, as `measure_layer` has them: with the key at `sink`, and without it.
        sink: position of that key; None for the first that each row sees.
        of: what was asked for: the shape of logits is measured without the sinks as well.

    Returns:
        By name, in the precision of the layer, [heads, T]: length_others, the keys left;
        n_eff_others and S_others, NaN where none is; sinks_mass, the weight p of all sinks in sight
        together, and of the learned one; of logits also gamma_others, NaN for one key,
        top_logit_others, the largest less the mean, and sinks_logit, log Σ e^s over the sinks in
        sight less the mean of the others, NaN where there are none.
    """
    sink, more = source.first if sink is None else sink, sinks.copy()
    if isinstance(sink, int):
        more[:, sink] = False
        apart, seen = sinks[:, sink, None], sees(source, sink)
    else:  # a sink may be the first key of some rows and not of others
        apart, seen = np.zeros((len(sinks), 1), bool), np.zeros((1, 1), bool)
    several = np.flatnonzero(more.any(1))
    found = _measured(rows, apart, seen)
    if several.size:
        own, heads = of_heads(source, several), sinks[several]
        step = at_once((source.shape[0], source.reach), _BLOCK)
        for start in range(0, source.shape[1], step):
            stop = min(start + step, source.shape[1])
            for name, values in _block(own, heads, of, start, stop).items():
                found[name][several, start:stop] = values
    return {name: x.astype(rows["S"].dtype) for name, x in found.items()}


def _measured(rows: Mapping[str, np.ndarray], apart: np.ndarray, seen: np.ndarray) -> Any:
    """What `without` returns for heads without sinks, or where the key set apart is the only one.

    Args:
        rows: as there.
        apart: whether that key is a sink, [heads, 1].
        seen: whether rows see it, [1 or heads, T].
    """
    found = {
        "length_others": rows["length"] - (apart & seen),
        "sinks_mass": np.where(
            apart, rows["sink_mass"], rows.get("learned_sink", 0 * rows["sink_mass"])
        ),
    }
    names = ("n_eff", "S", "gamma", *asked.SHAPE)
    for name in (name for name in names if name in rows):
        found[f"{name}_others"] = np.where(apart, rows[f"{name}_rest"], rows[name])
    if "sink_logit" in rows:
        logit, top = rows["sink_logit"], rows["top_logit_rest"]
        found["sinks_logit"] = np.where(apart, logit, np.nan)
        # Of the whole row, whose mean the key set apart moves by its share.
        n = rows["length"]
        whole = np.fmax(top, logit) - np.nan_to_num(logit) / np.maximum(n, 1)
        whole = np.where(n == 1, 0.0, whole)
        found["top_logit_others"] = np.where(apart, top, whole)
    return found


def spelled(token: str) -> str:
    """A token as a reader knows it: of bytes, Ġ is a space and Ċ a line's end."""
    text = token.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "↵").replace("ĉ", "⇥")
    return text.strip() or "␣"


def listed(
    importance: np.ndarray, words: Sequence[str], epsilon: float = EPSILON
) -> list[dict[str, Any]]:
    """The keys that are a sink of some head: position from 1, token, heads and the weight in these.

    Args:
        importance: [..., T], NaN for keys that too few rows see.
        words: the token at each position.
        epsilon: ε.
    """
    flat = importance.reshape(-1, importance.shape[-1])
    above, out = found(flat, epsilon), []
    for key in np.flatnonzero(above.any(0)).tolist():
        own = flat[above[:, key], key]
        out.append({"position": key + 1, "token": words[key], "heads": len(own)})
        out[-1]["importance"] = float(own.mean())
    return out
